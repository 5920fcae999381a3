/** Why a value is not JSON of an acceptable size; null when it is. Does not recurse: depth is checked before. */
export function jsonFault(
  value: unknown,
  limitBytes: number,
  depthMax: number,
): 'missing' | 'tooDeep' | 'tooLarge' | null {
  if (value === undefined) return 'missing';
  if (isDeeperThan(value, depthMax)) return 'tooDeep';
  const text = JSON.stringify(value) as string | undefined;
  if (text === undefined) return 'missing';
  return text.length > limitBytes || Buffer.byteLength(text) > limitBytes ? 'tooLarge' : null;
}

function isDeeperThan(value: unknown, depthMax: number): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > depthMax) return true;
    const next: unknown[] = [];
    for (const item of level) {
      if (typeof item !== 'object' || item === null) continue;
      for (const child of Object.values(item) as unknown[]) if (typeof child === 'object') next.push(child);
    }
    level = next;
  }
  return false;
}
