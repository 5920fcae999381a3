/** What may happen: the machines of jobs, tasks and sessions, pure, and how a stream of events folds into a state. */
export {
  CANCEL_REASONS,
  CancelReason,
  Epoch,
  Handle,
  isTerminalPhase,
  JobId,
  Phase,
  PHASES,
  Reason,
  REASONS,
  SafeName,
  Source,
  SOURCES,
  StepId,
  TaskId,
  TERMINAL_PHASES,
  Token,
  Waiting,
  WAITING,
  type TerminalPhase,
} from './vocabulary.js';

export { jobMachine, type JobSnapshot } from './job.js';
export type { JobContext } from './job-context.js';
export type { JobCreated, JobEvent, JobPolicy, MachineEvent } from './job-events.js';
export {
  contextOf,
  createJob,
  evolveJob,
  foldJob,
  IllegalEventError,
  isTerminal,
  phaseOf,
  restoreJob,
  storeJob,
  type Aftermath,
  type Job,
  type StoredJob,
} from './job-aggregate.js';
export { askOf, isCancelDue, isSettled, isWatched, type Ask } from './job-asks.js';
export { disproofConditions, isDisproved, isLossConfirmed, type Condition } from './evidence.js';

export { taskMachine, type TaskSnapshot } from './task.js';
export type { TaskContext } from './task-context.js';
export {
  TASK_PHASES,
  type TaskEvent,
  type TaskMachineEvent,
  type TaskPhase,
  type TaskSubmitted,
} from './task-events.js';
export {
  canTake,
  evolveTask,
  foldTask,
  isTaskOver,
  restoreTask,
  storeTask,
  taskContextOf,
  taskPhaseOf,
  type StoredTask,
  type Task,
} from './task-aggregate.js';

export { sessionMachine, type SessionSnapshot } from './session.js';
export type { RankIn, SessionContext, Step } from './session-context.js';
export {
  SESSION_STATES,
  STEP_ENDS,
  STEP_MODES,
  type SessionEvent,
  type SessionMachineEvent,
  type SessionRequested,
  type SessionState,
  type StepEnd,
} from './session-events.js';
export {
  canSessionTake,
  evolveSession,
  foldSession,
  sessionContextOf,
  sessionStateOf,
  type Session,
} from './session-aggregate.js';
export { expiredClock, idleEndsAtMs, isReady, lifetimeEndsAtMs, readinessOf, readinessWords } from './session-rules.js';

export type { BackendEvent } from './backend-events.js';
export { machineGraph, toDot, toMermaid, type MachineGraph } from './draw.js';
