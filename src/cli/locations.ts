import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import type { Io } from './io.js';

export function homeOf({ env }: Pick<Io, 'env'>): string {
  const home = env['HOME'] ?? '';
  return home.startsWith('/') ? home : homedir();
}

/** Where state directories are by default: `$XDG_STATE_HOME/open-compute`, or `~/.local/state/open-compute`. */
export function stateHome(io: Pick<Io, 'env'>): string {
  const xdg = io.env['XDG_STATE_HOME'] ?? '';
  // The specification has relative paths ignored.
  const base = xdg.startsWith('/') ? xdg : join(homeOf(io), '.local', 'state');
  return join(base, 'open-compute');
}

/** A worker's state directory: the chosen one, or `worker-NAME` in the state home. `name` is a safe name. */
export const workerStateDirectory = (io: Pick<Io, 'env' | 'cwd'>, name: string, chosen: string | undefined): string =>
  chosen === undefined ? join(stateHome(io), `worker-${name}`) : resolve(io.cwd, chosen);
