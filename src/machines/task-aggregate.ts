import { createFold } from './fold.js';
import { IllegalEventError } from './job-aggregate.js';
import type { Lease, TaskContext } from './task-context.js';
import type { TaskEvent, TaskPhase, TaskSubmitted } from './task-events.js';
import { taskMachine, type TaskSnapshot } from './task.js';
import type { TaskId } from './vocabulary.js';

export { IllegalEventError };

/** A task as its stream tells it. `version` is that of the last folded event. */
export interface Task {
  readonly snapshot: TaskSnapshot;
  readonly version: number;
}

const SAMPLE_INPUT: TaskSubmitted = {
  type: 'task.submitted',
  v: 1,
  atMs: 0,
  taskId: 'task_00000000000000000000000000' as TaskId,
  kind: 'sample',
  payload: null,
  by: 'sample',
  submissionKey: null,
  lossesMax: 1,
};

const fold = createFold(taskMachine, SAMPLE_INPUT);

export const taskPhaseOf = (task: Task): TaskPhase => task.snapshot.value;
export const taskContextOf = (task: Task): TaskContext => task.snapshot.context;
export const isTaskOver = (task: Task): boolean => task.snapshot.status === 'done';

/** The lease that is in force; null when the task waits or is over. */
export const liveLeaseOf = (task: Task): Lease | null =>
  task.snapshot.value === 'Leased' ? task.snapshot.context.lease : null;

/**
 * Folds one stored event. Throws `IllegalEventError` if the state cannot take it: the log is corrupt, or a writer is
 * wrong (INV-12).
 */
export function evolveTask(task: Task | null, event: TaskEvent): Task {
  if (event.type === 'task.submitted') {
    if (task !== null) throw illegal(task, event);
    return { snapshot: fold.initial(event), version: 1 };
  }
  if (task === null) throw new IllegalEventError(`${event.type} before task.submitted`);
  const snapshot = fold.next(task.snapshot, event);
  if (snapshot === task.snapshot) throw illegal(task, event);
  return { snapshot, version: task.version + 1 };
}

/** Whether the task's state has a transition for the event; what `evolveTask` would refuse answers false. */
export const canTake = (task: Task, event: Exclude<TaskEvent, TaskSubmitted>): boolean =>
  fold.next(task.snapshot, event) !== task.snapshot;

const illegal = (task: Task, event: TaskEvent): IllegalEventError =>
  new IllegalEventError(
    `${event.type} is illegal in ${task.snapshot.value} (${task.snapshot.context.taskId}, after version ${String(task.version)})`,
  );

/** Replays a whole stream. Throws on an empty one. */
export function foldTask(events: Iterable<TaskEvent>): Task {
  let task: Task | null = null;
  for (const event of events) task = evolveTask(task, event);
  if (task === null) throw new IllegalEventError('a task stream without events');
  return task;
}

/** What a checkpoint keeps of a task: plain JSON. */
export interface StoredTask {
  readonly phase: TaskPhase;
  readonly context: TaskContext;
  readonly version: number;
}

export const storeTask = (task: Task): StoredTask => ({
  phase: task.snapshot.value,
  context: task.snapshot.context,
  version: task.version,
});

export const restoreTask = (stored: StoredTask): Task => ({
  snapshot: fold.restore(stored.phase, stored.context),
  version: stored.version,
});
