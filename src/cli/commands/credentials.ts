import { resolve } from 'node:path';
import { access, constants, lstat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Option, type Command } from 'commander';
import { ROLES, type Role } from '../../coordinator/api.js';
import { writeCredentialsFile } from '../../coordinator/credentials-file.js';
import { readCredentials, valueOf, withClient } from '../client.js';
import { CliError, errnoOf, messageOf, usageError } from '../errors.js';
import { EXIT } from '../exit-codes.js';
import type { Io } from '../io.js';
import { credentialsOption, jsonOption, type ClientOptions } from '../options.js';
import { print, toTable, toTime } from '../output.js';
import { checkName, quoted } from '../payload.js';

interface CreateOptions extends ClientOptions {
  readonly role: Role;
  readonly name: string;
  readonly out: string;
  readonly url?: string;
}

export function define(command: Command, io: Io): void {
  command.addHelpText(
    'after',
    `
Roles: submitter submits and sees its own tasks; worker leases and runs tasks; viewer sees all tasks; admin may do
everything. All of these need an admin's credentials; the first are written by the first start of open-compute serve.`,
  );
  command
    .command('create')
    .description('make a credential and write its file, mode 0600')
    .addOption(new Option('--role <role>', 'what it may do').choices(ROLES).makeOptionMandatory())
    .requiredOption('--name <name>', 'who it is for')
    .requiredOption('--out <file>', 'the file to write; it must not exist yet')
    .option('--url <url>', "the coordinator's address in the file; default: the one in your own credentials")
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .action((options: CreateOptions) => create(io, options));
  command
    .command('list')
    .description('show all credentials; secrets are not kept')
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .action((options: ClientOptions) => list(io, options));
  command
    .command('revoke')
    .description('revoke a credential, for good')
    .argument('<id>', 'its id, as in list')
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .action((id: string, options: ClientOptions) => revoke(io, id, options));
}

async function create(io: Io, { role, name, out, url, credentials, json }: CreateOptions): Promise<void> {
  checkName('--name', name);
  if (url !== undefined && !(URL.canParse(url) && /^https?:$/.test(new URL(url).protocol))) {
    throw usageError(`--url ${quoted(url)} is no address`, 'such as http://gateway.example.org:7077');
  }
  const path = resolve(io.cwd, out);
  await checkTarget(path);
  const own = await readCredentials(io, credentials);
  await withClient(io, credentials, async (client) => {
    const { id, secret } = valueOf(await client.createCredential({ role, name }));
    try {
      await writeCredentialsFile(path, { url: url ?? own.url, id, secret });
    } catch (cause) {
      // Nobody has its secret: nobody can use it, and nobody should have to wonder about it.
      const revoked = await client.revokeCredential(id);
      const rest = revoked.kind === 'answered' ? 'it is revoked again' : `revoke ${id} by hand`;
      throw new CliError(EXIT.failed, `${messageOf(cause)}; ${rest}`, '', { cause });
    }
    await print(io, json === true, { id, role, name, file: path }, () => `${id} (${role}) written to ${path}\n`);
  });
}

/** Before anything is made at the coordinator. */
async function checkTarget(path: string): Promise<void> {
  const known = await lstat(path).catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return null;
    throw usageError(`${quoted(path)} can not be written: ${messageOf(error)}`);
  });
  if (known !== null) throw usageError(`${path} exists already`, 'name another file, or remove it first');
  await access(dirname(path), constants.W_OK).catch((error: unknown) => {
    throw usageError(`${quoted(path)} can not be written: ${messageOf(error)}`);
  });
}

async function list(io: Io, { credentials, json }: ClientOptions): Promise<void> {
  const found = await withClient(io, credentials, async (client) => valueOf(await client.listCredentials()));
  await print(io, json === true, found, () =>
    toTable(
      ['ID', 'NAME', 'ROLE', 'CREATED', 'REVOKED'],
      found.credentials.map(({ id, name, role, createdAtMs, revokedAtMs }) => [
        id,
        name,
        role,
        toTime(createdAtMs),
        revokedAtMs === null ? '' : toTime(revokedAtMs),
      ]),
    ),
  );
}

async function revoke(io: Io, id: string, { credentials, json }: ClientOptions): Promise<void> {
  if (!/^[\x21-\x7e]{1,100}$/.test(id)) throw usageError(`${quoted(id)} is no credential id`, 'see credentials list');
  const credential = await withClient(io, credentials, async (client) => valueOf(await client.revokeCredential(id)));
  await print(io, json === true, { credential }, () => `${credential.id} is revoked\n`);
}
