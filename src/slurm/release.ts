/** `slurm 22.05.8`, `slurm-wlm 24.11.5`: year and month, as in 22.05; null for a text that is neither. */
export function releaseOf(version: string): readonly [number, number] | null {
  const match = /\b([0-9]{1,2})\.([0-9]{1,2})(?:\.|-|\b)/.exec(version);
  return match === null ? null : [Number(match[1]), Number(match[2])];
}

/**
 * Whether srun knows --overlap: from 20.11 on (its release notes). Without it a step waits for CPUs that another step
 * has; an srun that does not know the option refuses to start. A release that can not be read counts as a new one.
 */
export function knowsOverlap(version: string): boolean {
  const [year, month] = releaseOf(version) ?? [99, 0];
  return year > 20 || (year === 20 && month >= 11);
}
