// Prints what the functions for figures and queries return.

import { rate, size, duration, sparkline } from "./format.js";
import { literal } from "./collections.js";
import { bars } from "./jobs.js";
import { query } from "./playground.js";
import { nearest, placed } from "./points.js";
const at = (atMs, n) => ({ atMs, figures: { n } });
const jobs = [{ started: "2026-01-01T00:00:00Z", duration_ms: 1000 }, { started: "2026-01-01T00:00:08Z", duration_ms: 2000 }, { started: "" }];
process.stdout.write(JSON.stringify([
  rate(at(0, 10), at(5000, 60), "n"), rate(null, at(1, 1), "n"), rate(at(0, 9), at(5000, 1), "n"),
  size(1536), duration(90000), sparkline([0, 5, 10], 10, 10),
  literal("VarChar", 'a"b'), literal("Int64", "9223372036854775807"),
  bars(jobs, Date.parse("2026-01-01T00:00:10Z")).map(([, begin, length]) => [begin, length]),
  query("7", "", { name: "id" }), query("", "[1, 2]", { name: "id" }), query("", "blue sky", { name: "id" }),
  placed([[1, -1, 0], [2, 1, 0], [3, 0, 0.5]], 224, 124), nearest([[10, 10], [20, 10]], 18, 11), nearest([[10, 10]], 50, 50),
]));
