export { EventBus, withBus, type BusErrorHandler, type Listener, type RecordedOf } from './bus.js';
export { ImportError, type ImportReport, type ImportTarget } from './import.js';
export { loadJobs, saveJobs, type LoadedJobs } from './job-checkpoint.js';
export { exportJsonl, importJsonl, JsonlFile } from './jsonl.js';
export { MemoryEventStore, type FaultHook, type MemoryStoreOptions } from './memory-store.js';
export { evolveRecorded, replayJob, replayJobs, replaySteps, type ReplayStep } from './replay.js';
export { clip, clipDiagnostics, TEXT_MAX } from './schema-parts.js';
export { isJobEvent, isTaskEvent, readEvent, type DomainEvent } from './schemas.js';
export { SqliteEventStore, type SqliteStoreOptions } from './sqlite-store.js';
export { openStateDirectory, type StateDirectory, type StateDirectoryOptions } from './state-directory.js';
export {
  InvalidEventError,
  StoreError,
  VersionConflictError,
  type Append,
  type Checkpoint,
  type EventStore,
  type RecordedEvent,
  type StoreFault,
} from './store.js';
export {
  backendStream,
  jobStream,
  parseStreamName,
  streamParts,
  taskStream,
  type StreamKind,
  type StreamName,
  type StreamParts,
} from './streams.js';
export type { Envelope, Upcaster, Upcasters } from './upcasters.js';
