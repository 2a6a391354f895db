// Pixels of the cells of the heat map: one stamp for each look. A look differs by its pattern wherever it differs by its
// colour.

/** How a cell is filled. */
export type Pattern = "ring" | "full" | "dots" | "diagonal" | "target" | "cross" | "lines" | "stairs" | { level: number };

/** Pixels of a cell, as 32-bit values of `ImageData`. */
export type Stamp = Uint32Array;

/** Return the 32-bit value of a colour such as "#005a8c" (little-endian: alpha, blue, green, red). */
export function pixel(colour: string): number {
  const text = colour.trim().replace("#", "");
  const whole = text.length === 3 ? [...text].map((digit) => digit + digit).join("") : text;
  const value = Number.parseInt(whole, 16);
  return ((255 << 24) | ((value & 255) << 16) | (value & 0xff00) | ((value >> 16) & 255)) >>> 0;
}

/** Return the 32-bit value of a hue with a saturation and a lightness of 0 to 1. */
export function hue(degrees: number, saturation: number, lightness: number): number {
  const part = (n: number): number => {
    const k = (n + degrees / 30) % 12;
    const amount = saturation * Math.min(lightness, 1 - lightness);
    return Math.round(255 * (lightness - amount * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return ((255 << 24) | (part(4) << 16) | (part(8) << 8) | part(0)) >>> 0;
}

/** Return the stamp of a cell.
 *
 * Args:
 *   size: edge of the cell in pixels, with one pixel or more that separates it from the next.
 *   gap: pixels of that separation.
 *   ink: colour of the cell. Where the pattern leaves it out, the background shows.
 *   marked: whether the upper right corner is cut off, as a sign for "look here".
 */
export function stamp(size: number, gap: number, pattern: Pattern, ink: number, marked = false): Stamp {
  const cell = new Uint32Array(size * size);
  const edge = size - gap;
  const thick = Math.max(1, Math.round(edge / 8));
  const corner = marked ? Math.max(2, Math.round(edge / 2.5)) : 0;
  for (let y = 0; y < edge; y += 1) {
    for (let x = 0; x < edge; x += 1) {
      if (corner > 0 && edge - 1 - x + y < corner) continue;
      if (isInked(pattern, x, y, edge, thick)) cell[y * size + x] = ink;
    }
  }
  return cell;
}

function isInked(pattern: Pattern, x: number, y: number, edge: number, thick: number): boolean {
  const border = x < thick || y < thick || x >= edge - thick || y >= edge - thick;
  if (typeof pattern === "object") return border || y >= edge * (1 - pattern.level);
  switch (pattern) {
    case "full":
      return true;
    case "ring":
      return border;
    case "dots":
      return border || (Math.floor(x / thick) % 2 === 0 && Math.floor(y / thick) % 2 === 0);
    case "diagonal":
      return border || (x + y) % (thick * 4) < thick * 2;
    case "stairs":
      return border || (x - y + edge * 4) % (thick * 4) < thick * 2;
    case "target":
      return border || (Math.abs(x - (edge - 1) / 2) < edge / 5 && Math.abs(y - (edge - 1) / 2) < edge / 5);
    case "cross":
      return Math.abs(x - y) <= thick || Math.abs(edge - 1 - x - y) <= thick;
    case "lines":
      return Math.floor(y / thick) % 2 === 0;
  }
}
