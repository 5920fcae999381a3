import { createActor, type AnyStateMachine, type EventFromLogic, type InputFrom, type SnapshotFrom } from 'xstate';
import { compile } from './fold-compiled.js';

/** A machine's pure step functions. */
export interface Fold<M extends AnyStateMachine> {
  /** `interpreted`: the machine has something that only XState itself can step through; correct, and 10 times slower. */
  readonly kind: 'compiled' | 'interpreted';
  readonly initial: (input: InputFrom<M>) => SnapshotFrom<M>;
  /** Returns the same object if the machine has no transition for the event. */
  readonly next: (snapshot: SnapshotFrom<M>, event: EventFromLogic<M>) => SnapshotFrom<M>;
  /** Rebuilds a snapshot from what a checkpoint keeps. Throws on a state that the machine does not have. */
  readonly restore: (value: string, context: SnapshotFrom<M>['context']) => SnapshotFrom<M>;
}

/**
 * Steps a machine without XState's interpreter where the machine is simple enough (fold-compiled.ts), and with it
 * otherwise. A property test holds both equal to XState's own `transition()`.
 */
export function createFold<M extends AnyStateMachine>(machine: M, sampleInput: InputFrom<M>): Fold<M> {
  const interpreted = interpret(machine, sampleInput);
  const sample = interpreted.initial(sampleInput);
  const steps = compile(machine, sample);
  if (steps === null) return interpreted;
  return {
    kind: 'compiled',
    initial: (input) => steps.initial(input) as SnapshotFrom<M>,
    next: (snapshot, event) => steps.next(snapshot, event) as SnapshotFrom<M>,
    restore: (value, context) => steps.restore(value, context) as SnapshotFrom<M>,
  };
}

type Scope = Parameters<AnyStateMachine['transition']>[2];

/**
 * XState's own `transition()` builds a new actor for each call: 7 to 19 µs an event. This is the scope which that makes,
 * made once: 2 to 10 µs, more with a larger context. Not for machines that invoke or spawn.
 */
export function interpret<M extends AnyStateMachine>(machine: M, sampleInput: InputFrom<M>): Fold<M> {
  const self = createActor(machine, { input: sampleInput });
  const scope: Scope = {
    self,
    id: '',
    sessionId: '',
    system: self.system,
    logger: () => undefined,
    defer: () => undefined,
    stopChild: () => undefined,
    emit: () => undefined,
    actionExecutor: () => undefined,
  };
  return {
    kind: 'interpreted',
    initial: (input) => machine.getInitialSnapshot(scope, input) as SnapshotFrom<M>,
    next: (snapshot, event) => machine.transition(snapshot, event, scope) as SnapshotFrom<M>,
    restore: (value, context) => machine.resolveState({ value, context }) as SnapshotFrom<M>,
  };
}
