// The utilisation of GPUs in the heat map: looks of cells, their stamps, and the same as words.
import type { Fleet } from "../fleet";
import { texts } from "../texts";
import { type Stamp, stamp } from "./stamps";

const t = texts({
  en: { idle: "idle", unknown: "unknown" },
  zh: { idle: "空闲", unknown: "未知" },
});

/** Byte of a GPU without a known utilisation, and GPUs of an instance in the column (`core/gpu_utilisation.py`). */
const UNKNOWN = 255;
const GPUS_MAX = 8;
/** Levels that a cell can show: 0 for an idle GPU, then one for each 20 %. */
const LEVELS = 5;
const UNKNOWN_LEVEL = "-";
/** Edge from which a cell has room for each GPU. */
const PIXELS_EACH = 12;

function percentages(fleet: Fleet, position: number): Uint8Array {
  const gpus = Math.min(GPUS_MAX, fleet.members.gpus[position] ?? 0);
  return fleet.utilisation?.subarray(position * GPUS_MAX, position * GPUS_MAX + gpus) ?? new Uint8Array(gpus).fill(UNKNOWN);
}

/** Return the look of an instance: a digit from 0 to 5 for each GPU, or "-" where it is unknown. */
export function levelsOf(fleet: Fleet, position: number): string {
  let levels = "";
  for (const percent of percentages(fleet, position)) levels += percent === UNKNOWN ? UNKNOWN_LEVEL : Math.ceil(percent / (100 / LEVELS));
  return levels;
}

/** The looks of the legend with their texts. */
export function levelTexts(): { levels: string; text: string }[] {
  const known = Array.from({ length: LEVELS + 1 }, (_, level) => ({
    levels: String(level).repeat(GPUS_MAX),
    text: level === 0 ? `0 % (${t("idle")})` : `≤ ${(level * 100) / LEVELS} %`,
  }));
  return [...known, { levels: UNKNOWN_LEVEL.repeat(GPUS_MAX), text: t("unknown") }];
}

/** Return the stamp of a look: 2 x 4 GPUs if there is room, else their mean. Where nothing is known: lines.
 *
 * Args:
 *   pixels, gap: as of `stamp`.
 *   ink: colour of utilisation.
 *   away: colour of what is unknown.
 */
export function levelStamp(levels: string, pixels: number, gap: number, ink: number, away: number): Stamp {
  const known = [...levels].filter((level) => level !== UNKNOWN_LEVEL);
  if (known.length === 0) return stamp(pixels, gap, "lines", away);
  if (pixels < PIXELS_EACH) {
    const mean = known.reduce((sum, level) => sum + Number(level), 0) / known.length / LEVELS;
    return stamp(pixels, gap, { level: mean }, ink);
  }
  const cell = stamp(pixels, gap, "ring", ink);
  const [across, down] = [Math.floor((pixels - gap) / 2), Math.floor((pixels - gap) / 4)];
  [...levels].forEach((level, gpu) => {
    const isKnown = level !== UNKNOWN_LEVEL;
    const filled = isKnown ? Math.round((across * Number(level)) / LEVELS) : across;
    for (let y = 0; y < Math.max(1, down - 1); y += 1) {
      for (let x = 0; x < filled; x += 1) {
        if (isKnown || (x + y) % 2 === 0) cell[(Math.floor(gpu / 2) * down + y) * pixels + (gpu % 2) * across + x] = isKnown ? ink : away;
      }
    }
  });
  return cell;
}

/** Return the utilisation of the GPUs in words, such as "GPU 0-6: ≤ 100 %, GPU 7: unknown"; "" if the map has none. */
export function utilisationOf(fleet: Fleet, position: number): string {
  if (fleet.utilisation === null) return "";
  const values = [...percentages(fleet, position)];
  const begins = values.flatMap((value, gpu) => (value === values[gpu - 1] ? [] : [gpu]));
  return begins
    .map((from, run) => {
      const last = (begins[run + 1] ?? values.length) - 1;
      const value = values[from] ?? UNKNOWN;
      const words = value === UNKNOWN ? t("unknown") : value === 0 ? "0 %" : `≤ ${value} %`;
      return `GPU ${last === from ? from : `${from}-${last}`}: ${words}`;
    })
    .join(", ");
}
