import type { Command } from 'commander';
import type { OfferedProfile } from '../../coordinator/api.js';
import { valueOf, withClient } from '../client.js';
import type { Io } from '../io.js';
import { credentialsOption, jsonOption, type ClientOptions } from '../options.js';
import { print, toDuration, toTable } from '../output.js';

export function define(command: Command, io: Io): void {
  command
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
FOR: the kinds of task that it serves: training runs its script, session holds its nodes for commands.
WORKERS: how many that offer a profile have been heard of lately. - stands for what the profile leaves to the backend.
With --json each profile has the JSON Schema of its parameters as well.`,
    )
    .action((options: ClientOptions) => profiles(io, options));
}

async function profiles(io: Io, { credentials, json }: ClientOptions): Promise<void> {
  const offered = await withClient(io, credentials, async (client) => valueOf(await client.profiles()));
  await print(io, json === true, offered, () =>
    offered.profiles.length === 0 ? 'no worker has offered a profile yet\n' : table(offered.profiles),
  );
}

const table = (profiles: readonly OfferedProfile[]): string =>
  toTable(
    ['PROFILE', 'FOR', 'WORKERS', 'CPUS', 'MEMORY', 'GPUS', 'NODES', 'TIME LIMIT', 'DESCRIPTION'],
    profiles.map(({ name, kinds, workers, cpus, memoryMiB, gpus, nodes, walltimeS, description }) => [
      name,
      kinds.join(', '),
      String(workers),
      amount(cpus),
      memoryMiB === null ? '' : `${String(memoryMiB)} MiB`,
      amount(gpus),
      amount(nodes),
      walltimeS === null ? '' : toDuration(walltimeS * 1000),
      description,
    ]),
  );

const amount = (value: number | null): string => (value === null ? '' : String(value));
