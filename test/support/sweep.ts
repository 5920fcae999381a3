import { distinct, FAULTS, LOG_FAULTS, type Effect, type Fault } from './fault-plan.js';
import { SweepWorld, type Story } from './sweep-world.js';

/** One place that fails in one way. */
export interface Case {
  readonly index: number;
  readonly effect: Effect;
  readonly fault: Fault;
}

/** The story without faults. */
export async function recording(story: Story): Promise<SweepWorld> {
  const world = new SweepWorld(story);
  await world.settle();
  return world;
}

/** Every fault of every different effect that is wanted. */
export function casesOf(world: SweepWorld, wanted: (effect: Effect, index: number) => boolean): readonly Case[] {
  const { effects } = world.plan;
  return distinct(effects, wanted).flatMap((index) => {
    const effect = effects[index];
    if (effect === undefined) return [];
    return (effect.port === 'log' ? LOG_FAULTS : FAULTS).map((fault) => ({ index, effect, fault }));
  });
}

/** For a person who has to find it again. */
export const nameOf = ({ index, effect, fault }: Case): string =>
  `${fault} at effect ${String(index)}: ${effect.port}.${effect.name} (logs at ${effect.mark})`;

/** Runs every case; gives what did not come out as `judge` wants it, one line each. */
export async function sweep(
  story: Story,
  cases: readonly Case[],
  judge: (world: SweepWorld, one: Case) => Promise<string | null>,
): Promise<readonly string[]> {
  const failures: string[] = [];
  for (const one of cases) {
    const world = new SweepWorld(story, one.index, one.fault);
    let verdict: string | null;
    try {
      await world.settle();
      verdict = await judge(world, one);
    } catch (error) {
      verdict = error instanceof Error ? error.message : String(error);
    }
    if (verdict !== null) failures.push(`${nameOf(one)}: ${verdict}`);
  }
  return failures;
}
