import { fc, test } from '@fast-check/jest';
import { describe, expect } from '@jest/globals';
import {
  and,
  assign,
  createMachine,
  initialTransition,
  transition,
  type AnyEventObject,
  type AnyMachineSnapshot,
  type AnyStateMachine,
} from 'xstate';
import { createFold, interpret, type Fold } from '../../src/machines/fold.js';
import { jobMachine } from '../../src/machines/job.js';
import { taskMachine } from '../../src/machines/task.js';
import { created } from '../support/job-events.js';
import { EVENTS } from '../support/job-situations.js';
import {
  abandonWish,
  cancelWish,
  cancelled,
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
} from '../support/task-events.js';

/** What a snapshot is to those who use it. */
const seen = (snapshot: AnyMachineSnapshot): object => ({
  value: snapshot.value as string,
  context: snapshot.context as object,
  status: snapshot.status,
  output: snapshot.output as unknown,
  tags: [...snapshot.tags],
  json: JSON.stringify(snapshot),
});

/** Folds the events in both ways, step by step; what XState says is right. */
function expectSame(
  machine: AnyStateMachine,
  fold: Fold<AnyStateMachine>,
  input: object,
  events: readonly AnyEventObject[],
): void {
  let [right] = initialTransition(machine, input);
  let ours = fold.initial(input);
  expect(seen(ours)).toEqual(seen(right));
  for (const event of events) {
    const [before, beforeOurs] = [right, ours];
    [right] = transition(machine, right, event);
    ours = fold.next(ours, event);
    expect(seen(ours)).toEqual(seen(right));
    expect(ours === beforeOurs).toBe(right === before);
    expect(ours.can(event)).toBe(right.can(event));
  }
  const restored = fold.restore(ours.value as string, ours.context as object);
  expect(seen(restored)).toEqual(seen(right));
}

const MACHINES: readonly {
  readonly name: string;
  readonly machine: AnyStateMachine;
  readonly input: object;
  readonly events: readonly AnyEventObject[];
}[] = [
  {
    name: 'job',
    machine: jobMachine,
    input: created(),
    events: [...Object.values(EVENTS), { type: 'backend.unreachable' }, { type: 'no.such.event' }],
  },
  {
    name: 'task',
    machine: taskMachine,
    input: submitted(),
    events: [
      ...[1, 2].flatMap((n) => [leased(n), opened(n), progressed(n), jobClosed(n), expired(n), released(n)]),
      ...[1, 2].flatMap((n) => [completed(n), failed(n), cancelled(n), lost(n)]),
      ...[cancelWish(), cancelWish(true), abandonWish(), { type: 'no.such.event' }],
    ],
  },
];

describe.each(MACHINES)('the fold of the $name machine', ({ machine, input, events }) => {
  const fold = createFold<AnyStateMachine>(machine, input);

  test('steps the machine without the interpreter', () => {
    expect(fold.kind).toBe('compiled');
  });

  test.prop([fc.array(fc.constantFrom(...events), { maxLength: 25 })], { numRuns: 500 })(
    "INV-12 gives exactly what XState's own transition gives, over any history",
    (history) => {
      expectSame(machine, fold, input, history);
    },
  );

  test('refuses a state that the machine does not have', () => {
    expect(() => fold.restore('Nope', input)).toThrow(/Nope/);
  });
});

describe('a machine that is not simple enough for the table', () => {
  const make = (config: object, implementations: object = {}): AnyStateMachine =>
    createMachine(config, implementations);
  const plain = { context: () => ({ n: 0 }), initial: 'a' } as const;
  const add = assign<{ n: number }, AnyEventObject, undefined, AnyEventObject, never>(({ context }) => ({
    n: context.n + 1,
  }));
  const never = (): boolean => false;
  const odd = {
    'nested states': make({ ...plain, states: { a: { initial: 'b', states: { b: {} }, on: { go: {} } } } }),
    'an eventless transition': createMachine({
      ...plain,
      states: { a: { on: { go: 'b' } }, b: { always: 'c' }, c: {} },
    }),
    'an action on entry': make({ ...plain, states: { a: { on: { go: 'b' } }, b: { entry: add } } }),
    'an inline action': make({ ...plain, states: { a: { on: { go: { actions: add } } } } }),
    'an inline guard': make({ ...plain, states: { a: { on: { go: { guard: never, target: 'b' } } }, b: {} } }),
    'a guard of guards': make(
      { ...plain, states: { a: { on: { go: { guard: 'both', target: 'b' } } }, b: {} } },
      { guards: { both: and([never, never]) } },
    ),
    'a delay': make({ ...plain, states: { a: { on: { go: 'b' } }, b: { after: { 10: 'a' } } } }),
    'a re-entry': make({ ...plain, states: { a: { on: { go: { target: 'a', reenter: true } } } } }),
    'a wildcard': make({ ...plain, states: { a: { on: { '*': 'b' } }, b: {} } }),
    'an action that does not assign': make(
      { ...plain, states: { a: { on: { go: { actions: 'shout' } } } } },
      { actions: { shout: () => undefined } },
    ),
  };

  test.each(Object.entries(odd))('with %s is stepped by XState itself', (_what, machine: AnyStateMachine) => {
    const fold = createFold(machine, undefined);
    expect(fold.kind).toBe('interpreted');
    expect(seen(fold.next(fold.initial(undefined), { type: 'go' }))).toEqual(
      seen(transition(machine, initialTransition(machine)[0], { type: 'go' })[0]),
    );
  });

  test.each(MACHINES)(
    "the $name machine stepped with one reused scope gives what XState's own transition gives",
    (one) => {
      expectSame(one.machine, interpret<AnyStateMachine>(one.machine, one.input), one.input, one.events);
    },
  );
});
