import { describe, expect, test } from '@jest/globals';
import { getShortestPaths } from 'xstate/graph';
import { createFold } from '../../src/machines/fold.js';
import { jobMachine, type JobSnapshot } from '../../src/machines/job.js';
import type { JobEvent, MachineEvent } from '../../src/machines/job-events.js';
import { taskMachine, type TaskSnapshot } from '../../src/machines/task.js';
import { TASK_PHASES, type TaskMachineEvent, type TaskSubmitted } from '../../src/machines/task-events.js';
import { isTerminalPhase, PHASES } from '../../src/machines/vocabulary.js';
import { epoch, jobId, taskId, token } from '../support/ids.js';
import { created, jobAfter, POLICY } from '../support/job-events.js';
import { EVENTS, SITUATIONS } from '../support/job-situations.js';
import { transitionsOf, transitionsTaken } from '../support/transitions.js';

const JOB_EVENTS: readonly MachineEvent[] = [
  ...Object.values(EVENTS).filter(isForMachine),
  { type: 'backend.unreachable' },
];

/** What a finished or duplicate job still gets is not the machine's. */
function isForMachine(event: JobEvent): event is Exclude<MachineEvent, { type: 'backend.unreachable' }> {
  const beside = ['job.created', 'duplicate.ended', 'outcome.delivered', 'directory.removed', 'late.observed'];
  return !beside.includes(event.type);
}

describe('the job machine as a graph', () => {
  // One look is enough here: how much evidence it takes is the table's subject, not the graph's.
  const input = created({ policy: { ...POLICY, settleMs: 0, looks: 1, lossGraceMs: 0, lossLooks: 1 } });
  const paths = getShortestPaths(jobMachine, {
    input,
    events: JOB_EVENTS,
    // Counters and times grow without end; what a guard can tell apart does not.
    serializeState: ({ value, context }: JobSnapshot) =>
      JSON.stringify([
        value,
        context.attempt?.open,
        context.lookup?.endedAtMs,
        Math.min(1, context.lookup?.queueLooks ?? 0),
        Math.min(1, context.lookup?.accountingLooks ?? 0),
        context.loss === null,
        context.completion === null,
        context.cancel?.reason,
      ]),
  });
  const snapshots: readonly JobSnapshot[] = paths.map((path) => path.state);

  test('every phase can be reached', () => {
    expect(new Set(snapshots.map((snapshot) => snapshot.value))).toEqual(new Set(PHASES));
  });

  test('every transition of the config is taken by a row of the transition table', () => {
    const taken = Object.values(SITUATIONS).flatMap((log) =>
      JOB_EVENTS.flatMap((event) => transitionsTaken(jobAfter(...log).snapshot, event)),
    );
    expect(new Set(taken)).toEqual(transitionsOf(jobMachine));
  });

  test('INV-6 no event leads out of a terminal phase, from wherever it was reached', () => {
    const ended = snapshots.filter((snapshot) => isTerminalPhase(snapshot.value));
    expect(ended.length).toBeGreaterThan(4);
    for (const snapshot of ended) {
      expect(snapshot.status).toBe('done');
      for (const event of JOB_EVENTS.filter(({ type }) => type !== 'backend.unreachable')) {
        expect(transitionsTaken(snapshot, event)).toEqual([]);
      }
    }
  });

  test('INV-10 an unreachable backend is the identity: the very same snapshot, wherever the job is', () => {
    const fold = createFold(jobMachine, input);
    for (const snapshot of snapshots.filter(({ status }) => status === 'active')) {
      expect(fold.next(snapshot, { type: 'backend.unreachable' })).toBe(snapshot);
    }
  });

  test('every live phase has a way to an end', () => {
    const ends = new Map<string, Set<string>>();
    for (const path of paths.filter(({ state }) => isTerminalPhase(state.value))) {
      for (const { state } of path.steps) {
        ends.set(state.value, (ends.get(state.value) ?? new Set()).add(path.state.value));
      }
    }
    for (const phase of PHASES) expect(ends.get(phase)?.size ?? 0).toBeGreaterThan(0);
  });
});

describe('the task machine as a graph', () => {
  const submitted: TaskSubmitted = {
    type: 'task.submitted',
    v: 1,
    atMs: 0,
    taskId: taskId(),
    kind: 'training',
    payload: {},
    by: 'ada',
    submissionKey: null,
    lossesMax: 2,
  };
  const head = { v: 1, atMs: 5 } as const;
  const outcomes = (nth: number): readonly TaskMachineEvent[] => {
    const base = { ...head, epoch: epoch(nth), jobId: jobId(nth) };
    return [
      { type: 'task.completed', ...base, result: null, warnings: [] },
      { type: 'task.failed', ...base, reason: 'EXIT_NONZERO', detail: '' },
      { type: 'task.cancelled', ...base, reason: 'USER_CANCELLED' },
      { type: 'task.lost', ...base, reason: 'NODE_FAILED', detail: '' },
      { type: 'task.progressed', ...base, phase: 'Running', reason: null, detail: '' },
      { type: 'task.jobClosed', ...head, jobId: jobId(nth), phase: 'Cancelled', reason: 'LEASE_LOST' },
      { type: 'task.leaseExpired', ...head, epoch: epoch(nth) },
      { type: 'task.released', ...head, epoch: epoch(nth), detail: '' },
      { type: 'task.leased', ...head, epoch: epoch(nth), workerId: 'w', worker: 'w', site: 's' },
      {
        type: 'task.jobOpened',
        ...head,
        job: { jobId: jobId(nth), token: token(nth), epoch: epoch(nth), worker: 'w', site: 's' },
      },
    ];
  };
  const events: readonly TaskMachineEvent[] = [
    ...outcomes(1),
    ...outcomes(2),
    { type: 'task.cancelRequested', ...head, by: 'ada', asAdmin: false },
    { type: 'task.abandonRequested', ...head, by: 'ada' },
  ];
  const paths = getShortestPaths(taskMachine, {
    input: submitted,
    events,
    serializeState: ({ value, context }: TaskSnapshot) =>
      JSON.stringify([
        value,
        context.epoch,
        context.openJobs,
        context.jobsTotal,
        context.losses,
        context.cancel,
        context.abandon,
      ]),
  });

  test('every phase can be reached', () => {
    expect(new Set(paths.map((path) => path.state.value))).toEqual(new Set(TASK_PHASES));
  });

  test('every transition of the config can be taken', () => {
    const taken = paths.flatMap(({ state }) => events.flatMap((event) => transitionsTaken(state, event)));
    expect(new Set(taken)).toEqual(transitionsOf(taskMachine));
  });

  test('INV-6 no event leads out of the end of a task', () => {
    for (const { state } of paths.filter((path) => path.state.status === 'done')) {
      for (const event of events) expect(transitionsTaken(state, event)).toEqual([]);
    }
  });

  test('INV-3 no path opens a second job under one lease, or lets a task end while a job of it is open', () => {
    for (const { state } of paths) {
      const { openJobs } = state.context;
      expect(new Set(openJobs.map((job) => job.epoch)).size).toBe(openJobs.length);
      if (state.status === 'done') expect(openJobs).toEqual([]);
    }
  });
});
