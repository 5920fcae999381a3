import type { StreamName } from './streams.js';

/** The stream is not where the writer thought; nothing of that append is written. */
export class VersionConflictError extends Error {
  override readonly name = 'VersionConflictError';
  readonly stream: StreamName;
  readonly expectedVersion: number;
  readonly actualVersion: number;

  constructor(stream: StreamName, expectedVersion: number, actualVersion: number) {
    super(
      `${stream} is at version ${String(actualVersion)}, not at ${String(expectedVersion)}: somebody else wrote to it`,
    );
    this.stream = stream;
    this.expectedVersion = expectedVersion;
    this.actualVersion = actualVersion;
  }
}

/** A writer handed over an event that its own schema refuses: a programming error; nothing is written. */
export class InvalidEventError extends Error {
  override readonly name = 'InvalidEventError';
}

export const STORE_FAULTS = [
  /** Another process writes here. */
  'locked',
  'networkFileSystem',
  'readOnly',
  /** Disk or quota; nothing was written, and the store goes on when there is room again. */
  'full',
  'corrupt',
  /** Anything else that the storage says. After one in a write, the store takes no more writes until it is reopened. */
  'io',
  /** Written by a newer release. */
  'newerVersion',
  /** There is no log at this place. */
  'missing',
  /** Others may change the directory. */
  'unsafe',
  'closed',
] as const;
export type StoreFault = (typeof STORE_FAULTS)[number];

/** The storage refused. `message` names the file and what to do. */
export class StoreError extends Error {
  override readonly name = 'StoreError';
  readonly fault: StoreFault;

  constructor(fault: StoreFault, message: string, options?: ErrorOptions) {
    super(message, options);
    this.fault = fault;
  }
}
