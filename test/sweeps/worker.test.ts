import { describe, expect, jest, test } from '@jest/globals';
import type { EventStore } from '../../src/events/store.js';
import { distinct } from '../support/fault-plan.js';
import type { Case } from '../support/sweep.js';
import { casesOf, recording, sweep } from '../support/sweep.js';
import { SweepWorld, type Story } from '../support/sweep-world.js';

// Hundreds of lives of a task, on a machine that may be busy.
jest.setTimeout(300_000);

const STORIES = {
  'the main path': { firstSubmission: 'answered', end: 'completes' },
  'a lost answer to a submission that landed': { firstSubmission: 'answerLost', end: 'completes' },
  'a lost submission': { firstSubmission: 'requestLost', end: 'completes' },
  'a cancel': { firstSubmission: 'answered', end: 'cancelled' },
} as const satisfies Record<string, Story>;

const MAIN = await recording(STORIES['the main path']);

/** The stories are one until the first submission: what comes before it is swept once. */
const isNew = (story: Story, world: SweepWorld, index: number): boolean =>
  story === STORIES['the main path'] || index >= world.plan.effects.findIndex(({ name }) => name === 'submit');

/** The one job that does the work, and the one outcome of its task. */
async function judge(story: Story, world: SweepWorld, { effect, fault }: Case): Promise<string | null> {
  const end = story.end === 'cancelled' ? 'Cancelled' : 'Completed';
  const { outcomes, landed, foreign } = await world.summary();
  const [first, ...others] = landed;
  // A submission that really happens twice: the oldest lives, the other one ends without having done the work.
  const isDoubled = effect.name === 'submit' && fault === 'twice';
  const isRight = first === end && foreign === 0 && outcomes.join(' ') === `task.${end.toLowerCase()}`;
  const isAlone =
    others.length === 0 || (isDoubled && others.every((phase) => phase === 'Cancelled' || phase === 'Failed'));
  return isRight && isAlone ? null : JSON.stringify({ outcomes, landed, foreign });
}

async function submissions(store: EventStore): Promise<number> {
  let count = 0;
  for await (const { event } of store.readAll()) if (event.type === 'submission.started') count += 1;
  return count;
}

for (const [name, story] of Object.entries(STORIES)) {
  const world = story === STORIES['the main path'] ? MAIN : await recording(story);
  const cases = casesOf(world, (effect, index) => effect.side === 'worker' && isNew(story, world, index));
  test(`INV-8 ${name}: after any of ${String(cases.length)} failures one job does the work, and there is one outcome`, async () => {
    expect(await sweep(story, cases, (swept, one) => judge(story, swept, one))).toEqual([]);
  });
}

test('the sweep reaches every effect that the worker has, in every way that it can fail', async () => {
  const effects = new Set<string>();
  for (const story of Object.values(STORIES)) {
    for (const { side, port, name } of (await recording(story)).plan.effects) {
      if (side === 'worker') effects.add(`${port}.${name}`);
    }
  }
  expect([...effects].sort()).toEqual([
    ...['backend.cancel', 'backend.endAttempt', 'backend.observe', 'backend.prepare', 'backend.selfTest'],
    ...['backend.submit', 'coordinator.acquire', 'coordinator.hello', 'coordinator.outcome', 'coordinator.putLogs'],
    ...['coordinator.renew', 'coordinator.report', 'directories.collect', 'directories.prepare', 'directories.remove'],
    ...['directories.tails', 'directories.takeWakes', 'log.append', 'log.appendAll'],
  ]);
  expect(casesOf(MAIN, ({ side }) => side === 'worker').length).toBeGreaterThanOrEqual(230);
});

describe('INV-12 the log cut at every length', () => {
  const LAST = MAIN.logs.worker;

  test('with the truth of the others unchanged nothing is sent again, and everything settles', async () => {
    const story = STORIES['the main path'];
    const length = await LAST.lastPosition();
    for (let cut = 0; cut <= length; cut += 1) {
      const world = await recording(story);
      const from = { world, worker: world.logs.worker.cutAfter(cut), coordinator: world.logs.coordinator };
      const after = new SweepWorld(story, null, 'crashBefore', from);
      await after.settle(20_000);
      const { outcomes, landed } = await after.summary();
      expect({ cut, outcomes, landed }).toEqual({ cut, outcomes: ['task.completed'], landed: ['Completed'] });
    }
    expect(length).toBe(8);
  });

  for (const [name, story] of Object.entries(STORIES)) {
    test(`${name}: once the intention is in it, the job of that moment is found, and delivered once`, async () => {
      let cuts = 0;
      for (const index of distinct((await recording(story)).plan.effects, ({ side }) => side === 'worker')) {
        const world = await recording(story);
        const [worker = 0, coordinator = 0] = (world.plan.effects[index]?.mark ?? '').split('/').map(Number);
        const logs = {
          worker: world.logs.worker.cutAfter(worker),
          coordinator: world.logs.coordinator.cutAfter(coordinator),
        };
        if ((await submissions(logs.worker)) < (await submissions(world.logs.worker))) continue;
        cuts += 1;
        const after = new SweepWorld(story, null, 'crashBefore', { world, ...logs });
        await after.settle();
        const end = story.end === 'cancelled' ? 'Cancelled' : 'Completed';
        const { outcomes, landed } = await after.summary();
        expect({ index, outcomes, landed }).toEqual({ index, outcomes: [`task.${end.toLowerCase()}`], landed: [end] });
      }
      expect(cuts).toBeGreaterThanOrEqual(20);
    });
  }
});
