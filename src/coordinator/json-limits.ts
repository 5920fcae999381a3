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

/** Whether arrays and objects are nested in more than `depthMax` levels. Does not recurse. */
export function isDeeperThan(value: unknown, depthMax: number): boolean {
  let level: object[] = isContainer(value) ? [value] : [];
  for (let depth = 1; level.length > 0; depth += 1) {
    if (depth > depthMax) return true;
    level = level.flatMap((item) => (Object.values(item) as unknown[]).filter(isContainer));
  }
  return false;
}

const isContainer = (value: unknown): value is object => typeof value === 'object' && value !== null;
