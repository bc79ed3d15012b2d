// Peer: llama.cpp through node-llama-cpp, one sequence (or several) with its own cache: moves, by a grammar of the legal
// ones, or texts of at most max_tokens tokens (it knows no way to go on past the model's end of text).
//
// `peer_llamacpp.mjs GGUF SEQUENCES THREADS CONTEXT`: game g lives in sequence g % SEQUENCES; each sequence keeps what
// its last prompt shares with the next. Same conversation with the driver as wire.py: one JSON object a line.
import {createInterface} from "node:readline";
import {getLlama, getModuleVersion, LlamaCompletion} from "node-llama-cpp";

const [gguf, sequencesText, threadsText, contextText] = process.argv.slice(2);
const sequences = Number(sequencesText);
const threads = Number(threadsText);

const llama = await getLlama({
    gpu: false, build: "never", skipDownload: true, logLevel: "error", maxThreads: threads
});
const model = await llama.loadModel({modelPath: gguf, gpuLayers: 0});
const context = await model.createContext({
    contextSize: Number(contextText), sequences, batchSize: 512, threads  // the size is of each sequence
});
const completions = Array.from(
    {length: sequences}, () => new LlamaCompletion({contextSequence: context.getSequence()})
);

async function write({game, prompt, max_tokens: maxTokens}) {
    const start = performance.now();
    let tokens = 0;
    const text = await completions[game % sequences].generateCompletion(
        prompt, {maxTokens, temperature: 0, onToken: (more) => tokens += more.length}
    );
    return {text, tokens, latency: (performance.now() - start) / 1000};
}

async function move({game, prompt, choices}) {
    const start = performance.now();
    const grammar = await llama.createGrammar({
        grammar: "root ::= " + choices.map((choice) => JSON.stringify(choice)).join(" | ")
    });
    const text = await completions[game % sequences].generateCompletion(
        prompt, {grammar, maxTokens: 7, temperature: 0}
    );
    return {text, latency: (performance.now() - start) / 1000};
}

async function answer(requests) {
    const start = performance.now();
    const cpu = process.cpuUsage();
    const answers = [];
    const one = (request) => request.choices ? move(request) : write(request);
    // One sequence cannot take the next prompt before it has answered; several are batched by the library.
    if (sequences === 1) for (const request of requests) answers.push(await one(request));
    else answers.push(...await Promise.all(requests.map(one)));
    const used = process.cpuUsage(cpu);
    return {
        seconds: (performance.now() - start) / 1000,
        cpu_seconds: (used.user + used.system) / 1e6,
        texts: answers.map(({text}) => text),
        tokens: answers.reduce((sum, {tokens}) => sum + (tokens ?? 0), 0),
        latencies: answers.map(({latency}) => latency)
    };
}

const version = [
    `node-llama-cpp ${await getModuleVersion()}`, `llama.cpp ${llama.llamaCppRelease.release}`, `node ${process.version}`
].join(", ");
console.log(JSON.stringify({ready: {version}}));
for await (const line of createInterface({input: process.stdin}))
    console.log(JSON.stringify(await answer(JSON.parse(line))));
process.exit(0);
