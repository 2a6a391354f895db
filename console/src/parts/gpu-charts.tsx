export function GpuCharts(_: { one: unknown }) {
  return null;
}
