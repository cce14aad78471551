// Promises, callbacks, streams and worker threads of Node.
import fs from "node:fs";
import { spawnSync } from "node:child_process";
import { Worker } from "node:worker_threads";

await Promise.all([...Array(300).keys()].map(async (n) => {
  await fs.promises.mkdir(`d${n % 10}/e`, { recursive: true });
  await fs.promises.writeFile(`d${n % 10}/e/${n}.tmp`, String(n));
  await fs.promises.rename(`d${n % 10}/e/${n}.tmp`, `d${n % 10}/e/${n}`);
}));
await Promise.all([0, 1, 2, 3].map((n) => new Promise((done, failed) => {
  const source = `require("fs").writeFileSync("worker${n}", "${n}"); require("fs").appendFileSync("worker${n}", "more")`;
  new Worker(source, { eval: true }).on("exit", done).on("error", failed);
})));
fs.cpSync("d1", "copy", { recursive: true });
fs.rmSync("d2", { recursive: true });
console.log(spawnSync("sh", ["-c", "find . -type f | wc -l"]).stdout.toString().trim());
