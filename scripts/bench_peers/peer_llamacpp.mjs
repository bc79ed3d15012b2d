// Peer: llama.cpp through node-llama-cpp, a grammar of the legal moves, one sequence (or several) with its own cache.
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
    contextSize: Number(contextText) * sequences, sequences, batchSize: 512, threads
});
const completions = Array.from(
    {length: sequences}, () => new LlamaCompletion({contextSequence: context.getSequence()})
);

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
    const moves = [];
    // One sequence cannot take the next prompt before it has answered; several are batched by the library.
    if (sequences === 1) for (const request of requests) moves.push(await move(request));
    else moves.push(...await Promise.all(requests.map(move)));
    const used = process.cpuUsage(cpu);
    return {
        seconds: (performance.now() - start) / 1000,
        cpu_seconds: (used.user + used.system) / 1e6,
        texts: moves.map(({text}) => text),
        latencies: moves.map(({latency}) => latency)
    };
}

const version = [
    `node-llama-cpp ${await getModuleVersion()}`, `llama.cpp ${llama.llamaCppRelease.release}`, `node ${process.version}`
].join(", ");
console.log(JSON.stringify({ready: {version}}));
for await (const line of createInterface({input: process.stdin}))
    console.log(JSON.stringify(await answer(JSON.parse(line))));
process.exit(0);
