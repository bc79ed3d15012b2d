"""The words by which a reply names a move as its answer, denies it or takes it back; English, and some Korean.

Patterns for text before a move are matched against its sentence in lower case, without marks and the move's number.
"""

from __future__ import annotations

import re

# A stop after a digit ends a sentence only where the digit is a square's: "1. e4" goes on.
SENTENCE_END = re.compile(r"\n|[!?;](?=\s|$)|(?<!\d)\.(?=\s|$)|(?<=[a-i]\d)\.(?=\s|$)")
MARKS = re.compile(r"(?:[*_`\"(){}\[\]<>#|\\$&]|(?<!\w)'|'(?!\w))+")
MOVE_NUMBER = re.compile(r"(\d{1,3})\s*(\.{1,3}|…)\s*(?:\.\.\.?|…)?\s*$")
BULLET = re.compile(r"\s*(?:[-*+•]\s|\d+\)\s)")
NOTE = re.compile(r"[*_`\"'\])}]*\s*(?:[,;:.(\n!?]|-\s|--|$)")
JOINED = re.compile(r"[\s*_`\"',/&]*(?:\b(?:or|and)\b|또는|혹은)?[\s*_`\"',/&]*")
ALONE_AFTER = re.compile(r"\W*(?:check|mate|checkmate|capture|장군|json|e\.p\.)?\W*$", re.I)

LEAD = r"(?:so|therefore|thus|hence|ok|okay|well|now|and|but|sure|finally|overall|here's|here is|here|this is|yes)"
KOREAN_LEAD = r"(?:저는|나는|제가|내가|그래서|따라서)"
TAKEN_BACK = (
    r"(?:actually|wait|no|hmm|hm|correction|sorry|rather|instead|scratch that|on second thought|on reflection|oops|"
    r"edit|i mean|i meant|ignore that|아니|수정|정정|다시 생각)"
)
_OWN = r"(?:my|the|our|this|{side}'s|so my|so the)"
_KIND = r"(?:final|best|strongest|chosen|selected|correct|only|recommended|uci|san)"
_NOUN = r"(?:answer|move|choice|decision|reply|response|bestmove|best|uci|san|boxed|resignation)"
_NAME = (
    rf"(?:(?:{_OWN} )?(?:{_KIND} )*{_NOUN}(?: (?:here|now|in uci|in san|number|\d+|for \w+|to \S+))*"
    r"|the move (?:that )?i(?:'ll| will)? \w+)"
)
_IS = (
    r"(?: ?(?:is|would be|will be|should be|must be|:|=|-))*"
    r"(?: (?:to|play|move|push|the move|a|an|simply|clear|just))*"
)
_SELF = (
    r"(?:i|i'll|i will|i would|i'd|i shall|i must|i am|i'm|i am going to|i'm going to|i have decided to|"
    r"let's|let us|let me|we|we'll|we will|{side}|{side} should|and i|so i)"
)
_VERB = (
    r"(?:plays?|playing|chooses?|picks?|go|goes|going|selects?|answers?|repl(?:y|ies)|responds?|moves?|push|"
    r"makes?|opt|decide|settle)"
)
_WITH = r"(?: (?:with|for|on|now|here|by|playing|the|move|my|a|to|simply|just))*"
_KOREAN = r"(?:(?:제|나의|내|이번|최선의|최종) )?(?:정답|답|답변|수|착수)(?: ?(?:은|는))?"
# "{side}" stands for the name of the side to move.
NAMING = (
    rf"(?:^|[,:;-] ?|\b(?:so|therefore|thus|hence|and|but) )(?:{LEAD},? )*"
    rf"(?:{_NAME}{_IS}|{_SELF}(?: \w+ly| therefore| now)? {_VERB}{_WITH}|{_KOREAN}) ?[:=-]*$"
    rf"|^(?:{LEAD},? )*(?:play|move|push|choose)(?: the| my| your| a)?$"
    rf"|\bnot \S+,? but$|^{TAKEN_BACK}(?:[ ,:-]+{TAKEN_BACK})*[ ,:-]*$"
)
# For a move that is itself the verb: "I castle", "I resign", "I pass".
DOING = rf"(?:^|[,:;] ?)(?:{LEAD},? )*{_SELF}$"

# Before a move in its sentence: it is denied, planned, compared, asked for, or somebody else's.
NOT_STATED = re.compile(
    r"\b(?:not(?! \S+,? but\b)|never|cannot|avoid\w*|except|refuse\w*|reject\w*|worst|worse|bad|wrong|weak\w*|"
    r"blunder\w*|mistake\w*|incorrect|illegal|losing|inferior|than|if|unless|when|once|after|before|later|then|"
    r"next|previous\w*|last|second|another|alternative\w*|alternatively|candidates?|consider\w*|fallback|normally|"
    r"usually|either|anything|could|might|may|opponent\w*|enemy|your|his|her|their|earlier|expected|threat\w*|"
    r"instead of|rather than|want|wanted|legal|possible|first|other)\b|n't\b|나쁜|차선|다음|상대|만약",
    re.I,
)
# What was weighed before one of these does not matter to what is named after it.
TURN = re.compile(r"\b(?:but|however|(?<!if )so|therefore|thus|hence)\b,?", re.I)
BENIGN = re.compile(
    r"\bafter (?:careful|consider\w*|analy\w*|think\w*|review\w*|much|some|weighing|evaluat\w*)[^,]*,"
    r"|^first,|\bfirst (?=i )",
    re.I,
)

# After a move in its sentence.
DENIED_AFTER = re.compile(
    r"^\W*(?:is|was|would be|looks|seems)\s+(?:\w+ly\s+)?(?:not\b|illegal|wrong|incorrect|impossible|bad\b|weak|"
    r"losing|rejected|(?:the|a|an)\s+(?:\w+\s+)?(?:worst|wrong|mistake|blunder|bad|illegal|losing))|"
    r"^\W*(?:isn't|wasn't|rejected|illegal|wrong|loses)|\bnot recommended|out of the question|premature|never play|"
    r"않|안 되|안 됩|아니|려 했|려고 했|못 |수 없|포기|취소|다면|했지만|했으나",
    re.I,
)
NAMED_AFTER = re.compile(
    r"^\W*(?:is|was|will be|would be)\s+(?:my|the|our)\s+(?:(?:final|best|strongest|chosen|right|correct)\s+)*"
    r"(?:answer|move|choice|decision|option)\b"
    r"|^\s*(?:을|를|로|으로)?\s*(?:두겠|둡니다|둔다|두자|선택하겠|선택합니다|입니다)",
    re.I,
)
RECOMMENDED_AFTER = re.compile(
    r"^\W*(?:is|looks|seems|appears|feels)\s+(?:to be\s+)?(?:\w+ly\s+)?(?:the\s+)?(?:best|better|good|strong|"
    r"stronger|strongest|natural|fine|solid|right|correct|clear|playable)\b",
    re.I,
)
RECOMMENDED_BEFORE = re.compile(
    r"\bi (?:think|believe|suggest|recommend|prefer|like|drop at|drop)$"
)
# "I would play it if ...": before and after a move that is only wished for.
WISHED_BEFORE = re.compile(r"\b(?:i would|i'd|we would|we'd)\b", re.I)
WISHED_AFTER = re.compile(r"^\W*(?:if|but|were)\b", re.I)
# What lets a later answer stand in the place of an earlier one.
FINAL = re.compile(r"\b(?:final\w*|answer|decision)\b|정답|답", re.I)
# Between an answer and a later move: after a named answer, and after one that only stands there.
TAKES_BACK = re.compile(rf"\b{TAKEN_BACK}\b|아니|수정|정정|다시 생각", re.I)
DOUBTS = re.compile(
    rf"\b{TAKEN_BACK}\b|\b(?:better|stronger|another|alternatively|one option|candidate)\b|아니",
    re.I,
)

# Before the name of a square that is no move, and names of pieces that make it part of another move.
OF_A_SQUARE = re.compile(
    r"\b(?:on|at|from|to(?! \S+ (?:is|with|by)\b)|squares?|square is|control\w*|attack\w*|towards?|weak|of|in|behind|"
    r"eye\w*|cover\w*|defend\w*|pressur\w*|via|through|against|guard\w*|protect\w*|occup\w+|the|over|around|for|near|"
    r"pins?|forks?|target\w*)\W+$",
    re.I,
)
PIECE_NAME = re.compile(
    r"\b(?:king|queen|rook|bishop|knight|horse|springer|l[äa]ufer|turm|dame|k[öo]nig|caballo|alfil|torre|reina|"
    r"cavalier|fou|tour|piece)\b(?!'s)",
    re.I,
)
PIECE_AFTER = re.compile(r"\W*(?:king|queen|rook|bishop|knight)\b(?!'s)", re.I)
PAWN_BEFORE = re.compile(r"\bpawn\b[^,]*$", re.I)
