import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { Backend, Profile, SessionLaunch } from '../../src/backend.js';
import { sessionLauncher } from '../../src/local/session-launcher.js';
import { freshDirectory, freshRunsDirectory } from '../support/job-directory.js';
import { localProfile, openLocal, prepareLocal, untilBriefly, type LocalJob } from '../support/local-jobs.js';
import { runStep } from '../support/steps.js';
import { eventually } from '../support/wait.js';

// Real processes on a busy machine: the bound is for a hang, not for speed.
jest.setTimeout(60_000);

/** Stays until its group is killed. */
const STAYS = 'exec sleep 600';
/** In the place of the agent: shell text, which is given the name of the rank's variable. */
const launch = (text: string, ranks = 3): SessionLaunch => ({
  ranks,
  command: ['/bin/sh', '-c', text, 'agent'],
  credentials: "/runs/it's/rank-{rank}",
});

describe('the launcher of a gang', () => {
  const children: ChildProcess[] = [];
  afterEach(() => {
    for (const { pid } of children.splice(0)) {
      try {
        if (pid !== undefined) process.kill(-pid, 'SIGKILL');
      } catch {
        // All of them have ended.
      }
    }
  });

  /** Runs it as run.sh does, in a group of its own, and gives its status. */
  function gang(session: SessionLaunch): { readonly directory: string; readonly status: Promise<number | null> } {
    const directory = freshDirectory();
    const path = join(directory, 'profile');
    writeFileSync(path, sessionLauncher(session));
    const child = spawn('sh', [path], { cwd: directory, detached: true, stdio: 'ignore' });
    children.push(child);
    return { directory, status: new Promise((resolve) => child.once('exit', resolve)) };
  }

  test('starts as many agents as there are ranks, each with its rank and where its credential is', async () => {
    const { directory, status } = gang(
      launch(': >"$1.$OPEN_COMPUTE_RANK"; echo "$OPEN_COMPUTE_CREDENTIALS" >told.$OPEN_COMPUTE_RANK'),
    );
    expect(await status).toBe(0);
    for (const rank of [0, 1, 2]) {
      expect(existsSync(join(directory, `OPEN_COMPUTE_RANK.${String(rank)}`))).toBe(true);
      expect(readFileSync(join(directory, `told.${String(rank)}`), 'utf8')).toBe("/runs/it's/rank-{rank}\n");
    }
    expect(existsSync(join(directory, 'OPEN_COMPUTE_RANK.3'))).toBe(false);
  });

  test.each([
    ['exits with 7', 'exit 7', 7],
    ['is killed', 'kill -s KILL $$', 137],
  ])('ends when the first agent %s, with its status, though the others would stay', async (_, end, expected) => {
    const { status } = gang(launch(`[ "$OPEN_COMPUTE_RANK" != 1 ] || ${end}; ${STAYS}`));
    expect(await status).toBe(expected);
  });

  test('has the status of the agent that failed first, not of those that follow it', async () => {
    const waits = 'while [ ! -e .gang-status ]; do sleep 0.02; done; exit 9';
    const { directory, status } = gang(launch(`[ "$OPEN_COMPUTE_RANK" != 2 ] || exit 5; ${waits}`));
    expect(await status).toBe(5);
    expect(readFileSync(join(directory, '.gang-status'), 'utf8')).toBe('5\n');
  });

  test('waits for those that stay when others have ended well', async () => {
    const { directory, status } = gang(
      launch(
        '[ "$OPEN_COMPUTE_RANK" = 2 ] || { : >well.$OPEN_COMPUTE_RANK; exit 0; }; while [ ! -e go ]; do sleep 0.02; done; : >gone',
      ),
    );
    let over = false;
    void status.then(() => (over = true));
    const ended = (rank: number): boolean => existsSync(join(directory, `well.${String(rank)}`));
    await eventually(() => (ended(0) && ended(1) ? true : null));
    expect(over).toBe(false);
    writeFileSync(join(directory, 'go'), '');
    expect(await status).toBe(0);
    expect(existsSync(join(directory, 'gone'))).toBe(true);
  });
});

describe('a step in a job of three nodes on this machine', () => {
  let backend: Backend;
  let job: LocalJob;

  beforeEach(async () => {
    const runsDir = await freshRunsDirectory();
    backend = await openLocal(runsDir);
    job = await submitSession(runsDir, { environment: { SITE: 'lab' } });
  });
  afterEach(async () => {
    await backend.cancel([job.target]);
    await untilBriefly(backend, job.item, 'Cancelled USER_CANCELLED');
    await backend.close();
  });

  async function submitSession(runsDir: string, over: Partial<Profile>): Promise<LocalJob> {
    const made = await prepareLocal(backend, runsDir, '#!/bin/sh\n', over);
    const profile = { ...localProfile(runsDir, '#!/bin/sh\n', over), scriptPath: null, nodes: 3 };
    const request = { ...made.request, profile, session: launch(STAYS) };
    await backend.prepare(request);
    const reply = await backend.submit(request);
    if (reply.kind !== 'accepted') throw new Error(JSON.stringify(reply));
    await untilBriefly(backend, made.item, 'Running');
    return { ...made, request, handle: reply.handle, target: { token: request.token, handle: reply.handle } };
  }

  const step = (text: string, nodes: number, tasks: number) =>
    runStep(backend, {
      handle: job.handle,
      argv: ['/bin/sh', '-c', text],
      nodes,
      tasks,
      directory: job.files.directory,
    });

  test('has as many processes as tasks, spread over the nodes, each of which knows both', async () => {
    const { reply, stdout } = await step('echo "$OPEN_COMPUTE_TASK on $OPEN_COMPUTE_NODE, $SITE"', 3, 5);
    expect(reply).toEqual({ kind: 'ended', exitCode: 0, signal: null });
    expect(stdout.split('\n').filter(Boolean).sort()).toEqual([
      '0 on 0, lab',
      '1 on 0, lab',
      '2 on 1, lab',
      '3 on 1, lab',
      '4 on 2, lab',
    ]);
  });

  test('ends as the worst of its processes', async () => {
    const worst = async (text: string) => (await step(text, 3, 3)).reply;
    expect(await worst('exit "$OPEN_COMPUTE_TASK"')).toEqual({ kind: 'ended', exitCode: 2, signal: null });
    expect(await worst('[ "$OPEN_COMPUTE_TASK" != 1 ] || kill -s TERM $$; exit 3')).toEqual({
      kind: 'ended',
      exitCode: null,
      signal: 'SIGTERM',
    });
  });

  test.each([
    [4, 4, 'the job holds 3 nodes, not 4'],
    [3, 2, '2 tasks do not fill 3 nodes: ask for more tasks'],
  ])('INV-4 of %i nodes and %i tasks is refused: nothing is started', async (nodes, tasks, detail) => {
    const ran = await step(': >ran', nodes, tasks);
    expect(ran.reply).toEqual({ kind: 'refused', detail });
    expect(existsSync(join(job.files.directory, 'ran'))).toBe(false);
  });

  test('whose command is not there ends as a whole, refused', async () => {
    const argv = ['/no/such/command'];
    const { reply } = await runStep(backend, {
      handle: job.handle,
      argv,
      nodes: 2,
      tasks: 2,
      directory: job.files.directory,
    });
    expect(reply).toMatchObject({ kind: 'refused', detail: expect.stringContaining('/no/such/command') });
  });
});
