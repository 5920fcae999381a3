import { beforeEach, expect, test } from '@jest/globals';
import { MemoryEventStore, type FaultHook } from '../../../src/events/memory-store.js';
import { StoreError, type EventStore } from '../../../src/events/store.js';
import { sessionContextOf, sessionStateOf } from '../../../src/machines/session-aggregate.js';
import type { TaskId } from '../../../src/machines/vocabulary.js';
import { SessionBook } from '../../../src/worker/sessions/session-book.js';
import { gatedStore } from '../../support/gated-store.js';
import { stepId, taskId } from '../../support/ids.js';
import { flush } from '../../support/manual-clock.js';
import {
  activity,
  answered,
  assigned,
  ended,
  granted,
  READY,
  registered,
  requested,
  stepEnded,
  stepRequested,
} from '../../support/session-events.js';

let onAppend: FaultHook;
let store: MemoryEventStore;
let changed: TaskId[];
let book: SessionBook;

const open = (over: EventStore = store): SessionBook => new SessionBook(over, (id) => changed.push(id));
const types = async (): Promise<readonly string[]> =>
  (await store.readStream(`session/${taskId()}`)).map(({ event }) => event.type);

beforeEach(() => {
  onAppend = () => undefined;
  changed = [];
  store = new MemoryEventStore({ writer: 'w', nowMs: () => 0, onAppend: (...given) => onAppend(...given) });
  book = open();
});

/** A store whose appends wait until they are let go. */
function holding(): { readonly store: EventStore; readonly waiting: (() => void)[] } {
  const waiting: (() => void)[] = [];
  return { waiting, store: gatedStore(store, () => new Promise((resolve) => waiting.push(resolve))) };
}

test('INV-12 an event is folded, and told of, only when it is durable', async () => {
  await book.open(requested());
  const { store: slow, waiting } = holding();
  book = open(slow);
  await book.load(taskId());
  changed = [];
  const recording = book.record(taskId(), () => [assigned()]);
  await flush();
  expect(waiting).toHaveLength(1);
  expect([book.get(taskId())?.version, changed]).toEqual([1, []]);
  waiting.shift()?.();
  expect(await recording).toEqual([assigned()]);
  expect([book.get(taskId())?.version, changed]).toEqual([2, [taskId()]]);
});

test('INV-12 what could not be written is not folded, and the next record goes on from what is durable', async () => {
  await book.open(requested());
  onAppend = (when) => {
    if (when === 'before') throw new StoreError('full', 'no space');
  };
  await expect(book.record(taskId(), () => [assigned()])).rejects.toThrow('no space');
  expect(book.get(taskId())?.version).toBe(1);
  onAppend = () => undefined;
  expect(await book.record(taskId(), () => [assigned()])).toEqual([assigned()]);
  expect(await types()).toEqual(['session.requested', 'session.jobAssigned']);
});

test('records that are asked for at once take turns, each decided on what the one before has left', async () => {
  await book.open(requested());
  await book.record(taskId(), () => READY);
  const { store: slow, waiting } = holding();
  book = open(slow);
  const seen: number[] = [];
  const records = [1, 2, 3].map((n) =>
    book.record(taskId(), (session) => {
      seen.push(sessionContextOf(session).openSteps.length);
      return [stepRequested(n)];
    }),
  );
  for (let n = 1; n <= 3; n += 1) {
    for (let turn = 0; turn < 5; turn += 1) await flush();
    expect([seen, waiting.length]).toEqual([Array.from({ length: n }, (_, index) => index), 1]);
    waiting.shift()?.();
  }
  await Promise.all(records);
  const session = await book.load(taskId());
  const steps = session === null ? [] : sessionContextOf(session).openSteps;
  expect(steps.map((step) => step.stepId)).toEqual([1, 2, 3].map((n) => stepId(n)));
});

test('a record that fails does not hold up the next one of its session', async () => {
  await book.open(requested());
  const failing = book.record(taskId(), () => {
    throw new Error('a decision that fails');
  });
  const next = book.record(taskId(), () => [assigned()]);
  await expect(failing).rejects.toThrow('a decision that fails');
  expect(await next).toEqual([assigned()]);
});

test('an append that seemed to fail and had landed is found in the stream, and the decision is made anew', async () => {
  await book.open(requested());
  onAppend = (when) => {
    if (when === 'after') throw new StoreError('io', 'the answer was lost');
  };
  await expect(book.record(taskId(), () => [assigned()])).rejects.toThrow('the answer was lost');
  onAppend = () => undefined;
  const states: string[] = [];
  const recorded = await book.record(taskId(), (session) => {
    states.push(`${sessionStateOf(session)} ${String(session.version)}`);
    return [assigned(), granted()];
  });
  expect(states).toEqual(['Waiting 1', 'Waiting 2']);
  // The first of them was there by then.
  expect(recorded).toEqual([granted()]);
  expect(await types()).toEqual(['session.requested', 'session.jobAssigned', 'allocation.granted']);
});

test('a stream that is ahead each time is an error after a few tries, and not an endless loop', async () => {
  await book.open(requested());
  let tries = 0;
  const ahead = open(
    new Proxy<EventStore>(store, {
      get: (of, name) => {
        if (name !== 'readStream') {
          const member: unknown = Reflect.get(of, name, of);
          return typeof member === 'function' ? (member.bind(of) as unknown) : member;
        }
        return async () => {
          tries += 1;
          return (await of.readStream(`session/${taskId()}`)).slice(0, 1);
        };
      },
    }),
  );
  await book.record(taskId(), () => [assigned()]);
  await expect(ahead.record(taskId(), () => [assigned()])).rejects.toThrow(/session\/task_/);
  expect(tries).toBe(3);
});

test('what the state does not take is left out, and nothing is written when nothing is left', async () => {
  await book.open(requested());
  const recorded = await book.record(taskId(), () => [
    registered(0),
    assigned(),
    answered(0),
    registered(0),
    activity(),
    answered(0),
  ]);
  expect(recorded).toEqual([assigned(), registered(0), answered(0)]);
  changed = [];
  expect(await book.record(taskId(), () => [assigned()])).toEqual([]);
  expect(await book.record(taskId(), () => [])).toEqual([]);
  expect(changed).toEqual([]);
  expect(await types()).toHaveLength(4);
  await book.record(taskId(), () => [ended()]);
  expect(await book.record(taskId(), () => [registered(1), stepRequested()])).toEqual([]);
});

test('a session without a stream has nothing recorded; one that is opened twice begins once', async () => {
  expect(await book.record(taskId(), () => [assigned()])).toEqual([]);
  expect(await book.load(taskId())).toBeNull();
  await Promise.all([book.open(requested()), book.open(requested({ atMs: 9 }))]);
  await open().open(requested({ atMs: 10 }));
  expect(await types()).toEqual(['session.requested']);
  expect(book.size).toBe(1);
});

test('a session that has left memory is read again from its stream', async () => {
  await book.open(requested());
  await book.record(taskId(), () => READY);
  book.drop(taskId());
  expect([book.get(taskId()), [...book.all()]]).toEqual([null, []]);
  const again = await book.load(taskId());
  expect(again === null ? null : sessionStateOf(again)).toBe('Ready');
});

test('the end of a step is found however many steps have ended since', async () => {
  await book.open(requested());
  await book.record(taskId(), () => READY);
  for (let n = 1; n <= 30; n += 1)
    await book.record(taskId(), () => [stepRequested(n), stepEnded(n, 7_000, n === 1 ? 'cancelled' : 'exited')]);
  await book.record(taskId(), () => [stepRequested(31)]);
  const end = { exitCode: null, signal: null, detail: '', droppedBytes: 0 };
  expect(await book.endOf(taskId(), stepId(1))).toEqual({ how: 'cancelled', ...end });
  expect(await book.endOf(taskId(), stepId(30))).toEqual({ how: 'exited', ...end, exitCode: 0 });
  expect(await book.endOf(taskId(), stepId(31))).toBeNull();
  expect(await book.endOf(taskId(2), stepId(1))).toBeNull();
});
