// Places of the cells of the heat map: groups and zones are blocks with a caption, racks are runs of cells.
import type { Members } from "../fleet";

export interface Caption {
  text: string;
  x: number;
  y: number;
}

/** All lengths are in pixels of the device, so that a cell is drawn pixel by pixel on any screen. */
export interface Layout {
  width: number;
  height: number;
  /** Edge of a cell, its gap included. */
  size: number;
  /** Pixels of the device for one CSS pixel. */
  ratio: number;
  /** Place of each cell by position. */
  x: Int32Array;
  y: Int32Array;
  captions: Caption[];
  /** Positions by row, for the arrow keys. */
  rows: number[][];
}

/** Lengths in CSS pixels. */
const CAPTION = 20;
const GUTTER = 84;
const RACK_GAP = 6;
/** More racks than this are runs in the same rows, without captions of their own. */
const RACKS_NAMED = 40;

/** Return the edge of a cell for a number of instances and a width in CSS pixels. */
export function cellSize(instances: number, width: number): number {
  const small = width < 500;
  if (instances <= 40) return small ? 32 : 44;
  if (instances <= 120) return small ? 20 : 28;
  if (instances <= 400) return small ? 12 : 16;
  if (instances <= 2_000) return small ? 8 : 12;
  return small ? 6 : 8;
}

/** Return the places of all cells. The members are in the order of group, zone and rack.
 *
 * Args:
 *   cssWidth: CSS pixels that there are. The layout has the whole pixels of the device among them.
 *   ratio: pixels of the device for one CSS pixel.
 */
export function layoutOf(members: Members, cssWidth: number, ratio: number): Layout {
  const count = members.ids.length;
  const [width, size] = [Math.floor(cssWidth * ratio), Math.max(4, Math.round(cellSize(count, cssWidth) * ratio))];
  const layout: Layout = { width, height: 0, size, ratio, x: new Int32Array(count), y: new Int32Array(count), captions: [], rows: [] };
  const [captionHeight, rackGap] = [Math.round(CAPTION * ratio), Math.round(RACK_GAP * ratio)];
  const named = rackRuns(members) <= RACKS_NAMED;
  const left = named && members.racks.some((rack) => rack !== "") ? Math.floor(Math.min(GUTTER * ratio, width / 4)) : 0;
  let x = left;
  let y = -size;
  let row: number[] = [];
  const newRow = (): void => {
    if (row.length > 0) layout.rows.push(row);
    row = [];
    x = left;
    y += size;
  };
  for (let position = 0; position < count; position += 1) {
    const block = position === 0 || members.group[position] !== members.group[position - 1] || members.zone[position] !== members.zone[position - 1];
    const rack = block || members.rack[position] !== members.rack[position - 1];
    if (block) {
      newRow();
      const names = [members.groups[members.group[position] ?? 0], members.zones[members.zone[position] ?? 0]];
      const text = names.filter((name) => name !== undefined && name !== "").join(" · ");
      if (text !== "") {
        y += position === 0 ? 0 : rackGap * 2;
        layout.captions.push({ text, x: 0, y });
        y += captionHeight;
      }
    } else if (rack && named) {
      newRow();
      y += rackGap;
    } else if (rack) {
      x += rackGap;
      // A rack is not broken into two rows where a row has room for it.
      if (x + rackLength(members, position) * size > width && x > left + rackGap) newRow();
    }
    if (rack && left > 0) layout.captions.push({ text: members.racks[members.rack[position] ?? 0] ?? "", x: Math.round(4 * ratio), y });
    if (x + size > width) newRow();
    layout.x[position] = x;
    layout.y[position] = y;
    row.push(position);
    x += size;
  }
  if (row.length > 0) layout.rows.push(row);
  layout.height = y + size;
  return layout;
}

function rackLength(members: Members, start: number): number {
  let end = start;
  while (end < members.ids.length && members.rack[end] === members.rack[start] && members.zone[end] === members.zone[start]) end += 1;
  return end - start;
}

function rackRuns(members: Members): number {
  let runs = 0;
  for (let position = 0; position < members.ids.length; position += 1) {
    if (position === 0 || members.rack[position] !== members.rack[position - 1]) runs += 1;
  }
  return runs;
}

/** Return the position of the cell at a point; -1 where there is none. */
export function cellAt(layout: Layout, x: number, y: number): number {
  const first = (row: number[]): number => layout.y[row[0] ?? 0] ?? 0;
  let low = 0;
  let high = layout.rows.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (first(layout.rows[middle] ?? []) <= y) low = middle;
    else high = middle - 1;
  }
  const row = layout.rows[low];
  if (row === undefined || y < first(row) || y >= first(row) + layout.size) return -1;
  return row.find((position) => x >= (layout.x[position] ?? 0) && x < (layout.x[position] ?? 0) + layout.size) ?? -1;
}

/** Return the position that an arrow key leads to. */
export function moved(layout: Layout, position: number, key: string): number {
  const count = layout.x.length;
  if (key === "ArrowRight") return Math.min(count - 1, position + 1);
  if (key === "ArrowLeft") return Math.max(0, position - 1);
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  const y = layout.y[position] ?? 0;
  const at = layout.rows.findIndex((row) => (layout.y[row[0] ?? 0] ?? 0) === y);
  const row = layout.rows[at + (key === "ArrowDown" ? 1 : -1)];
  if (row === undefined) return position;
  const x = layout.x[position] ?? 0;
  return row.reduce((best, each) => (Math.abs((layout.x[each] ?? 0) - x) < Math.abs((layout.x[best] ?? 0) - x) ? each : best));
}
