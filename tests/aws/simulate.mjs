// Simulations as JSON on standard input, their results as JSON on standard output (tests/aws/simulator.py).
import { runSimulation } from "@cloud-copilot/iam-simulate";
import { text } from "node:stream/consumers";

const answers = [];
for (const simulation of JSON.parse(await text(process.stdin))) {
  const answer = await runSimulation(simulation, {});
  answers.push(answer.resultType === "error" ? `error: ${JSON.stringify(answer.errors)}` : answer.overallResult);
}
console.log(JSON.stringify(answers));
