import { resolve } from 'node:path';
import { CoordinatorClient, type ClientAnswer } from '../coordinator/client.js';
import { readCredentialsFile, type CredentialsFile } from '../coordinator/credentials-file.js';
import { TaskId } from '../machines/vocabulary.js';
import { CliError, usageError } from './errors.js';
import { EXIT, type ExitCode } from './exit-codes.js';
import type { Io } from './io.js';
import { quoted } from './payload.js';

/** `--credentials`, else the file that OPEN_COMPUTE_CREDENTIALS names. Throws a `CliError` or `CredentialsFileError`. */
export async function readCredentials(io: Io, option: string | undefined): Promise<CredentialsFile> {
  const path = option ?? io.env['OPEN_COMPUTE_CREDENTIALS'] ?? '';
  if (path === '') {
    const hint =
      'give --credentials FILE, or set OPEN_COMPUTE_CREDENTIALS; an administrator makes one with open-compute credentials create';
    throw new CliError(EXIT.unauthorized, 'no credentials file was named', hint);
  }
  return readCredentialsFile(resolve(io.cwd, path));
}

/** Runs something with a client of the coordinator that the credentials name, and lets go of its connections. */
export async function withClient<T>(
  io: Io,
  credentials: string | undefined,
  use: (client: CoordinatorClient) => Promise<T>,
): Promise<T> {
  const client = new CoordinatorClient(await readCredentials(io, credentials), io);
  try {
    return await use(client);
  } finally {
    client.close();
  }
}

/** The value of an answer. Throws a `CliError` that says why there is none. */
export function valueOf<T>(answer: ClientAnswer<T>): T {
  switch (answer.kind) {
    case 'answered':
      return answer.value;
    case 'unreachable':
      throw unreachable(answer.detail);
    case 'refused':
      throw refused(answer);
  }
}

export const unreachable = (detail: string): CliError =>
  new CliError(EXIT.unreachable, `the coordinator does not answer: ${detail}`, 'is open-compute serve running there?');

export const refused = ({ status, message, hint }: Extract<ClientAnswer<never>, { kind: 'refused' }>): CliError =>
  new CliError(BY_STATUS[status] ?? EXIT.usage, message, hint);

/** Every other "no" is about what was sent. */
const BY_STATUS: Readonly<Record<number, ExitCode>> = {
  401: EXIT.unauthorized,
  403: EXIT.unauthorized,
  404: EXIT.notFound,
  409: EXIT.failed,
  423: EXIT.failed,
};

/** Throws a usage error. */
export function parseTaskId(text: string): TaskId {
  const parsed = TaskId.safeParse(text);
  if (parsed.success) return parsed.data;
  throw usageError(
    `${quoted(text)} is no task id`,
    'a task id is task_ and 26 characters, as open-compute submit prints it',
  );
}
