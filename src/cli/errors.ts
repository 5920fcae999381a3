import { StoreError } from '../events/errors.js';
import { EXIT, type ExitCode } from './exit-codes.js';

/** An error made for people: one sentence about what was tried on what, and a hint what to do next. */
export class CliError extends Error {
  override readonly name = 'CliError';
  readonly exitCode: ExitCode;
  readonly hint: string;

  constructor(exitCode: ExitCode, message: string, hint = '', options?: ErrorOptions) {
    super(message, options);
    this.exitCode = exitCode;
    this.hint = hint;
  }
}

/** The command did what it was asked; the exit code is not its own, but that of what it ran. Nothing is said about it. */
export class ExitWith extends Error {
  override readonly name = 'ExitWith';
  /** 1 to 255. */
  readonly exitCode: number;

  constructor(exitCode: number) {
    super(`exit with ${String(exitCode)}`);
    this.exitCode = exitCode;
  }
}

export const usageError = (message: string, hint = ''): CliError => new CliError(EXIT.usage, message, hint);

/** By name: their classes would bring zod and xstate into every start. Each says itself what to do. */
const KNOWN: Readonly<Record<string, ExitCode>> = {
  CredentialsFileError: EXIT.unauthorized,
  ImportError: EXIT.usage,
  IllegalEventError: EXIT.storage,
};

export interface ErrorReport {
  readonly exitCode: ExitCode;
  readonly message: string;
  readonly hint: string;
}

/** What a person gets to read about anything that was thrown. */
export function reportOf(error: unknown): ErrorReport {
  if (error instanceof CliError) return { exitCode: error.exitCode, message: error.message, hint: error.hint };
  if (error instanceof StoreError) {
    const exitCode = error.fault === 'missing' ? EXIT.notFound : EXIT.storage;
    const hint = error.fault === 'networkFileSystem' ? 'name one with --state-dir' : '';
    return { exitCode, message: error.message, hint };
  }
  const known = error instanceof Error ? KNOWN[error.name] : undefined;
  if (known !== undefined) return { exitCode: known, message: messageOf(error), hint: '' };
  return {
    exitCode: EXIT.failed,
    message: messageOf(error),
    hint: 'set OPEN_COMPUTE_DEBUG=1 to see where this came from',
  };
}

/** One line for people of anything that was thrown. */
export function messageOf(error: unknown): string {
  if (typeof error === 'object' && error !== null && 'message' in error && typeof error.message === 'string') {
    return error.message;
  }
  return String(error);
}

/** The errno name (`ENOENT`, …) of what a `node:fs` or network call threw; null if it is something else. */
export function errnoOf(error: unknown): string | null {
  if (typeof error !== 'object' || error === null || !('code' in error)) return null;
  return typeof error.code === 'string' ? error.code : null;
}
