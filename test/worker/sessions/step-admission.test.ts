import { describe, expect, test } from '@jest/globals';
import type { StepRequest } from '../../../src/coordinator/session-api.js';
import type { Job } from '../../../src/machines/job-aggregate.js';
import { sessionStateOf, type Session } from '../../../src/machines/session-aggregate.js';
import type { SessionMachineEvent } from '../../../src/machines/session-events.js';
import { admission } from '../../../src/worker/sessions/step-admission.js';
import { refusal } from '../../../src/worker/sessions/step-words.js';
import { stepId } from '../../support/ids.js';
import { at, jobAfter } from '../../support/job-events.js';
import {
  answered,
  assigned,
  ended,
  ending,
  granted,
  interrupted,
  left,
  prepared,
  READY,
  registered,
  sessionAfter,
  stepRequested,
  withdrawn,
} from '../../support/session-events.js';

const NEVER_ALLOCATES = /never makes one$/;
const READY_SESSION = sessionAfter(...READY);

const accepted = [at(1).started(), at(2).accepted()] as const;
const RUNNING = jobAfter(...accepted, at(3).running());

const common = { stepId: stepId(), argv: ['hostname'], timeLimitS: null, outputLimitBytes: 1_000 } as const;
type Run = Extract<StepRequest, { mode: 'run' }>;
const run = (over: Partial<Run> = {}): StepRequest => ({
  mode: 'run',
  ...common,
  argv: [...common.argv],
  nodes: null,
  tasks: null,
  cpusPerTask: null,
  ...over,
});
const exec = (rank = 0): StepRequest => ({ mode: 'exec', ...common, argv: [...common.argv], rank, stdin: false });

describe('a session that is not ready', () => {
  test.each([
    ['not here', null],
    ['Waiting, without a job', sessionAfter()],
    ['Waiting, for its allocation', sessionAfter(assigned(), prepared())],
    ['Waiting again, its nodes withdrawn', sessionAfter(...READY, withdrawn())],
    ['Ending', sessionAfter(...READY, ending())],
    ['Interrupted', sessionAfter(...READY, interrupted())],
    ['Ended', sessionAfter(...READY, ended())],
  ] as const)('INV-5 refuses a step when it is %s, even with a job that runs', (_, session) => {
    for (const request of [run(), exec()]) {
      const verdict = admission(session, RUNNING, request);
      expect(verdict.kind).toBe('refused');
      expect(verdict).toMatchObject({ detail: expect.stringMatching(NEVER_ALLOCATES) });
    }
  });

  test.each([
    ['no rank is in', [assigned(), prepared(), granted()], 'waiting for ranks 0, 1'],
    ['one rank is missing', [assigned(), prepared(), granted(), registered(0), answered(0)], 'waiting for rank 1'],
    ['an agent has not answered', [...READY.slice(0, 5), answered(0)], '2 of 2 ranks; waiting for an answer of rank 1'],
    ['a rank has left', [...READY, left(1)], 'waiting for rank 1'],
    ['a rank came in anew', [...READY, registered(1)], 'waiting for an answer of rank 1'],
    ['its workspace is not there', [assigned(), granted()], 'waiting for the workspace'],
  ] as const)('INV-5 keeps a step waiting while %s, and says so', (_, events, words) => {
    const session = sessionAfter(...events);
    expect(sessionStateOf(session)).toBe('Starting');
    expect(admission(session, RUNNING, run())).toEqual({
      kind: 'notYet',
      detail: expect.stringContaining(words),
    });
  });
});

describe('a session whose job does not run', () => {
  const over = [at(4).completion(), at(5).collected()] as const;
  test.each<readonly [string, Job | null]>([
    ['is not there', null],
    ['has not been submitted', jobAfter()],
    ['is Pending', jobAfter(...accepted)],
    ['is Unknown', jobAfter(at(1).started(), at(2).lost())],
    ['is Completed', jobAfter(...accepted, at(3).running(), ...over)],
    ['is Failed', jobAfter(...accepted, at(3).running(), at(4).failed())],
    ['is Cancelled', jobAfter(...accepted, at(3).running(), at(4).cancelled())],
    ['is abandoned', jobAfter(...accepted, at(3).running(), at(4).abandoned())],
  ])('INV-4 a ready session refuses a step when its job %s', (_, job) => {
    for (const session of [READY_SESSION, sessionAfter(...READY, left(0))]) {
      const verdict = admission(session, job, exec());
      expect(verdict.kind).toBe('refused');
      expect(verdict).toMatchObject({ detail: expect.stringMatching(NEVER_ALLOCATES) });
    }
  });
});

describe('a ready session', () => {
  test.each<readonly [string, StepRequest]>([
    ['no sizes', run()],
    ['one of its nodes', run({ nodes: 1, tasks: 5 })],
    ['all of its nodes', run({ nodes: 2 })],
    ['a task on each node', run({ nodes: 2, tasks: 2 })],
    ['the last rank', exec(1)],
  ])('INV-5 admits a step that asks for %s', (_, request) => {
    expect(admission(READY_SESSION, RUNNING, request)).toEqual({ kind: 'admitted', noticeDue: null });
  });

  test.each<readonly [string, StepRequest, string]>([
    ['a rank that it does not have', exec(2), 'ranks 0 to 1: there is no rank 2'],
    ['more nodes than it holds', run({ nodes: 3 }), 'holds 2 nodes, not 3'],
    ['fewer tasks than nodes', run({ nodes: 2, tasks: 1 }), '1 tasks do not fill 2 nodes'],
  ])('INV-4 refuses a step that asks for %s: it gets no allocation of its own', (_, request, words) => {
    const verdict = { kind: 'refused', detail: expect.stringContaining(words) };
    expect(admission(READY_SESSION, RUNNING, request)).toEqual(verdict);
    // Waiting for the ranks would not make it fit.
    expect(admission(sessionAfter(...READY, left(0)), RUNNING, request)).toEqual(verdict);
  });

  test('takes 64 steps at a time, and no further one before one has ended', () => {
    const open = (count: number): Session =>
      sessionAfter(...READY, ...Array.from({ length: count }, (_, n): SessionMachineEvent => stepRequested(n + 1)));
    expect(admission(open(63), RUNNING, exec()).kind).toBe('admitted');
    expect(admission(open(64), RUNNING, exec())).toEqual({
      kind: 'refused',
      detail: '64 steps run in this session already; wait for one to end',
    });
  });

  test('that came back as a new job says so with the next step, and only with that', () => {
    const again: readonly SessionMachineEvent[] = [
      interrupted(1, 'PREEMPTED'),
      assigned(2),
      prepared(),
      granted(),
      ...[0, 1].flatMap((rank) => [registered(rank, 2), answered(rank, 2)]),
    ];
    const session = sessionAfter(...READY, ...again);
    expect(admission(session, RUNNING, exec())).toEqual({
      kind: 'admitted',
      noticeDue: 'this session came back as a new job (PREEMPTED): what its processes had in memory is gone',
    });
    expect(admission(sessionAfter(...READY, ...again, stepRequested()), RUNNING, exec())).toEqual({
      kind: 'admitted',
      noticeDue: null,
    });
  });
});

test('the end of a refused step has no exit code, and words of a bounded length', () => {
  expect(refusal('x'.repeat(10_000))).toEqual({
    how: 'refused',
    exitCode: null,
    signal: null,
    detail: 'x'.repeat(4_000),
    droppedBytes: 0,
  });
});
