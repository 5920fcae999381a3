import fc from 'fast-check';
import type { JobAnswer, SeenAnswer, SeenState } from '../../src/backend.js';
import { handle } from './ids.js';

/** What a backend answers about one job, for tests that fill in only what they are about. */
export const seen = (state: SeenState, over: Partial<Omit<SeenAnswer, 'kind' | 'state'>> = {}): SeenAnswer => ({
  kind: 'seen',
  handle: handle(),
  source: 'queue',
  state,
  why: '',
  warnings: [],
  diagnostics: {},
  duplicates: [],
  ...over,
});

export const absent = (over: Partial<Extract<JobAnswer, { kind: 'absent' }>> = {}): JobAnswer => ({
  kind: 'absent',
  queue: 'absent',
  accounting: 'absent',
  limitEndsAtMs: null,
  detail: 'not here',
  ...over,
});

export const unanswered: JobAnswer = { kind: 'unanswered', detail: 'no answer', queueAbsent: false };

const texts = fc.constantFrom('', 'Priority', 'Resources', 'x'.repeat(10_000), '\u0000\n');
const handles = fc.constantFrom(handle('41', 5), handle('42'), handle('43', 20));

const states: fc.Arbitrary<SeenState> = fc.oneof(
  fc.record({ phase: fc.constant('Pending'), waiting: fc.constantFrom('queued', 'held', 'never') }),
  fc.record({ phase: fc.constant('Running'), ending: fc.boolean() }),
  fc.constant({ phase: 'Completed' } as const),
  fc.record({ phase: fc.constant('Failed'), reason: fc.constantFrom('EXIT_NONZERO', 'OUT_OF_MEMORY') }),
  fc.record({ phase: fc.constant('Cancelled'), reason: fc.constant('ADMIN_CANCELLED') }),
  fc.record({ phase: fc.constant('Lost'), reason: fc.constantFrom('NODE_FAILED', 'PREEMPTED') }),
);

export const seenAnswers: fc.Arbitrary<SeenAnswer> = fc.record({
  kind: fc.constant('seen'),
  handle: handles,
  source: fc.constantFrom('queue', 'accounting'),
  state: states,
  why: texts,
  warnings: fc.array(texts, { maxLength: 2 }),
  diagnostics: fc.dictionary(fc.constantFrom('state', 'k'.repeat(300)), texts),
  duplicates: fc.uniqueArray(handles, { maxLength: 2, selector: ({ id }) => id }),
});

const limits: fc.Arbitrary<number | null> = fc.option(fc.nat(20_000));

export const absentAnswers: fc.Arbitrary<JobAnswer> = fc.record({
  kind: fc.constant('absent'),
  queue: fc.constant('absent'),
  accounting: fc.constantFrom('absent', 'absent', 'absent', 'stillActive', 'notKept'),
  limitEndsAtMs: limits,
  detail: texts,
});

export const unansweredAnswers: fc.Arbitrary<JobAnswer> = fc.record({
  kind: fc.constant('unanswered'),
  detail: texts,
  queueAbsent: fc.boolean(),
});

/** Everything that a backend can answer about one job; absence often enough to be confirmed. */
export const answers: fc.Arbitrary<JobAnswer> = fc.oneof(
  { weight: 3, arbitrary: seenAnswers },
  { weight: 6, arbitrary: absentAnswers },
  { weight: 1, arbitrary: unansweredAnswers },
);
