import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { initialTransition, transition } from 'xstate';
import {
  canTake,
  evolveTask,
  foldTask,
  IllegalEventError,
  isTaskOver,
  liveLeaseOf,
  restoreTask,
  storeTask,
  taskContextOf,
  taskPhaseOf,
  type Task,
} from '../../src/machines/task-aggregate.js';
import { JOBS_KEPT } from '../../src/machines/task-context.js';
import type { TaskMachineEvent } from '../../src/machines/task-events.js';
import { taskMachine } from '../../src/machines/task.js';
import { jobId } from '../support/ids.js';
import {
  abandonWish,
  cancelled,
  cancelWish,
  completed,
  expired,
  failed,
  jobClosed,
  leased,
  lost,
  opened,
  progressed,
  released,
  submitted,
  taskAfter,
} from '../support/task-events.js';

/** Every kind of event, of the lease with number 1; `foreign` and `next` of the lease that would follow. */
const EVENTS = {
  leased: leased(2),
  foreignLeased: leased(2, 'elsewhere'),
  sameEpochLeased: leased(1),
  opened: opened(1),
  openedAnother: opened(1, 'lab', 9),
  progressed: progressed(1),
  closed: jobClosed(1),
  expired: expired(1),
  released: released(1),
  cancelWish: cancelWish(),
  abandonWish: abandonWish(),
  completed: completed(1),
  failed: failed(1),
  cancelled: cancelled(1),
  lost: lost(1),
  staleCompleted: completed(7),
} as const satisfies Record<string, TaskMachineEvent>;
type EventName = keyof typeof EVENTS;
type Row = Partial<Record<EventName, string>>;

const OUTCOMES = { completed: 'Completed', failed: 'Failed', cancelled: 'Cancelled', lost: 'Queued' } as const;

/** Situation → what brings a task there, and event → phase (`=`: it stays). What is not named is illegal. */
const TABLE: Readonly<Record<string, { readonly events: readonly TaskMachineEvent[]; readonly row: Row }>> = {
  'Queued, never leased': {
    events: [],
    row: {
      leased: 'Leased',
      foreignLeased: 'Leased',
      sameEpochLeased: 'Leased',
      cancelWish: 'Cancelled',
      abandonWish: 'Failed',
    },
  },
  'Queued, a job still open': {
    events: [leased(1), opened(1), expired(1)],
    row: { leased: 'Leased', closed: '=', cancelWish: '=', abandonWish: 'Failed' },
  },
  'Queued, a job still open, wished away': {
    events: [leased(1), opened(1), cancelWish(), expired(1)],
    row: { leased: 'Leased', closed: 'Cancelled', abandonWish: 'Failed' },
  },
  'Leased, no job': {
    events: [leased(1)],
    row: {
      opened: '=',
      openedAnother: '=',
      progressed: '=',
      expired: 'Queued',
      released: 'Queued',
      cancelWish: '=',
      abandonWish: '=',
      ...OUTCOMES,
    },
  },
  'Leased, a job open': {
    events: [leased(1), opened(1)],
    row: {
      progressed: '=',
      closed: '=',
      expired: 'Queued',
      released: 'Queued',
      cancelWish: '=',
      abandonWish: '=',
      ...OUTCOMES,
    },
  },
  'Leased, no job, wished away': {
    events: [leased(1), cancelWish()],
    row: {
      opened: '=',
      openedAnother: '=',
      progressed: '=',
      expired: 'Cancelled',
      released: 'Cancelled',
      abandonWish: '=',
      ...OUTCOMES,
      lost: 'Cancelled',
    },
  },
  'Leased, a job open, wished away': {
    events: [leased(1), opened(1), cancelWish()],
    row: {
      progressed: '=',
      closed: '=',
      expired: 'Queued',
      released: 'Queued',
      abandonWish: '=',
      ...OUTCOMES,
      lost: 'Cancelled',
    },
  },
  'Leased, a job open, to be abandoned': {
    events: [leased(1), opened(1), abandonWish()],
    row: {
      progressed: '=',
      closed: '=',
      expired: 'Failed',
      released: 'Failed',
      cancelWish: '=',
      ...OUTCOMES,
      lost: 'Failed',
    },
  },
  'Leased, the last loss allowed': {
    events: [leased(1), opened(1), lost(1), leased(2), opened(2), lost(2), leased(3), opened(3)],
    row: { cancelWish: '=', abandonWish: '=' },
  },
  Completed: { events: [leased(1), opened(1), completed(1)], row: {} },
  Failed: { events: [leased(1), opened(1), failed(1)], row: {} },
  Cancelled: { events: [leased(1), opened(1), cancelled(1)], row: {} },
  DeadLetter: {
    events: [leased(1), opened(1), lost(1), leased(2), opened(2), lost(2), leased(3), opened(3), lost(3)],
    row: {},
  },
};

describe('the task machine', () => {
  for (const [situation, { events, row }] of Object.entries(TABLE)) {
    test(`${situation}: takes exactly the events of the table`, () => {
      const task = taskAfter(...events);
      expect(taskPhaseOf(task)).toBe(situation.split(',', 1)[0]);
      for (const [name, event] of Object.entries(EVENTS) as [EventName, TaskMachineEvent][]) {
        const expected = row[name];
        if (expected === undefined) {
          expect([name, canTake(task, event)]).toEqual([name, false]);
          expect(() => evolveTask(task, event)).toThrow(IllegalEventError);
        } else {
          const phase = expected === '=' ? taskPhaseOf(task) : expected;
          expect([name, taskPhaseOf(evolveTask(task, event))]).toEqual([name, phase]);
        }
      }
    });
  }

  test('INV-3: while a job is open, only a worker of its site may take over, and it is told which job', () => {
    const task = taskAfter(leased(1, 'lab'), opened(1, 'lab'), expired(1));
    expect(canTake(task, leased(2, 'elsewhere'))).toBe(false);
    const taken = evolveTask(task, leased(2, 'lab'));
    expect(taskContextOf(taken).openJobs.map((job) => job.jobId)).toEqual([jobId(1)]);
  });

  test('INV-3: a job is opened where the lease was given, and nowhere else', () => {
    const task = taskAfter(leased(1, 'lab'));
    expect(canTake(task, opened(1, 'elsewhere'))).toBe(false);
    expect(canTake(task, opened(1, 'lab'))).toBe(true);
  });

  test('INV-3: one lease opens one job, and no outcome is announced while another job is open', () => {
    const task = taskAfter(leased(1), opened(1), expired(1), leased(2), opened(2));
    expect(canTake(task, opened(2, 'lab', 3))).toBe(false);
    for (const outcome of [completed(2), failed(2), cancelled(2), lost(2)]) expect(canTake(task, outcome)).toBe(false);
    expect(taskPhaseOf(evolveTask(evolveTask(task, jobClosed(1)), completed(2)))).toBe('Completed');
  });

  test('INV-6, INV-7: whatever happens, epochs grow, old ones are refused, and a task that is over stays as it is', () => {
    const anyEvent = fc
      .tuple(fc.integer({ min: 1, max: 6 }), fc.constantFrom('lab', 'elsewhere'), fc.integer({ min: 0, max: 12 }))
      .map(([n, site, which]): TaskMachineEvent => {
        const all = [
          leased(n, site),
          leased(n, site),
          opened(n, site),
          opened(n, site),
          progressed(n),
          jobClosed(n),
          expired(n),
          released(n),
          cancelWish(),
          abandonWish(),
          completed(n),
          failed(n),
          lost(n),
        ];
        return all[which] ?? lost(n);
      });
    let over = 0;
    fc.assert(
      fc.property(fc.array(anyEvent, { maxLength: 40 }), (events) => {
        let task: Task = taskAfter();
        for (const event of events) {
          const before = task;
          if (!canTake(task, event)) continue;
          expect(isTaskOver(before)).toBe(false);
          task = evolveTask(task, event);
          expect(taskContextOf(task).epoch).toBeGreaterThanOrEqual(taskContextOf(before).epoch);
          if ('epoch' in event && event.type !== 'task.leased') {
            expect(event.epoch).toBe(liveLeaseOf(before)?.epoch);
          }
          const live = taskContextOf(task).openJobs.filter((job) => job.epoch === taskContextOf(task).epoch);
          expect(live.length).toBeLessThanOrEqual(1);
          expect(new Set(taskContextOf(task).openJobs.map((job) => job.site)).size).toBeLessThanOrEqual(1);
          if (isTaskOver(task)) {
            over += 1;
            expect(taskContextOf(task).endedAtMs).not.toBeNull();
            expect(taskContextOf(task).openJobs).toEqual([]);
          }
        }
      }),
      { numRuns: 400 },
    );
    expect(over).toBeGreaterThan(50);
  });

  test("the fold gives exactly what XState's own transition gives, and a stored task is the same task", () => {
    for (const { events } of Object.values(TABLE)) {
      let [snapshot] = initialTransition(taskMachine, submitted());
      for (const event of events) [snapshot] = transition(taskMachine, snapshot, event);
      const task = taskAfter(...events);
      expect([task.snapshot.value, task.snapshot.context, task.snapshot.status]).toEqual([
        snapshot.value,
        snapshot.context,
        snapshot.status,
      ]);
      const restored = restoreTask(JSON.parse(JSON.stringify(storeTask(task))) as ReturnType<typeof storeTask>);
      expect(storeTask(restored)).toEqual(storeTask(task));
      expect(isTaskOver(restored)).toBe(isTaskOver(task));
    }
  });

  test('a dead letter keeps every job, how often it was lost, and why the last time', () => {
    const { events } = TABLE['DeadLetter'] ?? { events: [] };
    const context = taskContextOf(taskAfter(...events));
    expect(context.jobs.map(({ jobId: id, phase, reason }) => [id, phase, reason])).toEqual(
      [1, 2, 3].map((n) => [jobId(n), 'Lost', 'NODE_FAILED']),
    );
    expect(context).toMatchObject({
      losses: 3,
      reason: 'NODE_FAILED',
      detail: 'lost 3 times, the last time: node gone',
    });
  });

  test('an abandon names the jobs that may live on, and keeps them apart from the open ones', () => {
    const context = taskContextOf(taskAfter(leased(1), opened(1), expired(1), abandonWish()));
    expect(context.reason).toBe('ABANDONED');
    expect(context.detail).toContain(jobId(1));
    expect(context.openJobs).toEqual([]);
    expect(context.forgotten.map((job) => job.jobId)).toEqual([jobId(1)]);
  });

  test("an administrator's cancel and a submitter's have different reasons", () => {
    expect(taskContextOf(taskAfter(cancelWish(false))).reason).toBe('USER_CANCELLED');
    expect(taskContextOf(taskAfter(cancelWish(true))).reason).toBe('ADMIN_CANCELLED');
  });

  test('the context stays bounded however often a task is leased', () => {
    const events: TaskMachineEvent[] = [];
    for (let n = 1; n <= 100; n += 1) events.push(leased(n), opened(n), expired(n), jobClosed(n));
    const { jobs, jobsTotal } = taskContextOf(taskAfter(...events));
    expect(jobsTotal).toBe(100);
    expect(jobs.length).toBe(JOBS_KEPT);
    expect(jobs.at(-1)?.jobId).toBe(jobId(100));
  });

  test('INV-12: a stream that does not begin with its submission, or has two, is an error', () => {
    expect(() => foldTask([leased(1)])).toThrow(IllegalEventError);
    expect(() => foldTask([submitted(), submitted()])).toThrow(IllegalEventError);
    expect(() => foldTask([])).toThrow(IllegalEventError);
  });

  test('its configuration is plain JSON', () => {
    expect(JSON.parse(JSON.stringify(taskMachine.config.states))).toEqual(taskMachine.config.states);
  });
});
