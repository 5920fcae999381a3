import { Command, CommanderError } from 'commander';
import { COMMANDS } from './commands.js';
import { CliError, errnoOf, ExitWith, reportOf } from './errors.js';
import { EXIT, EXIT_CODES_HELP } from './exit-codes.js';
import type { Io } from './io.js';
import { packageVersion } from './package-version.js';
import { printableLine, printableText, toJson } from './output.js';

/**
 * Runs one command line and says how it ended. Never throws: what a command throws is told to the person on stderr.
 * Only the module of the command that is asked for is loaded.
 */
export async function runCli(argv: readonly string[], io: Io): Promise<number> {
  const written: Promise<void>[] = [];
  let usage = '';
  const program = new Command('open-compute')
    .description('Runs reviewed work on a cluster or on this machine: nothing lost, nothing run twice.')
    .version(packageVersion(), '-V, --version')
    .helpOption('-h, --help', 'explain a command')
    .addHelpText('after', `\n${EXIT_CODES_HELP}\n\nOPEN_COMPUTE_DEBUG=1 shows where an error came from.`)
    .exitOverride()
    .configureOutput({
      writeOut: (text) => written.push(io.stdout.write(text)),
      writeErr: (text) => written.push(io.stderr.write(text)),
      outputError: (text) => {
        usage = text;
      },
      getOutHelpWidth: () => io.stdout.columns,
      getErrHelpWidth: () => io.stderr.columns,
    });
  const wanted = wantedCommand(argv);
  try {
    for (const { name, group, summary, load } of COMMANDS) {
      const command = program.command(name).description(summary).helpGroup(group);
      if (name === wanted) (await load()).define(command, io);
    }
    await program.parseAsync(argv, { from: 'user' });
    return EXIT.ok;
  } catch (error) {
    if (error instanceof ExitWith) return error.exitCode;
    if (error instanceof CommanderError && usage === '') return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    if (errnoOf(error) === 'EPIPE') return EXIT.ok;
    if (io.signal.aborted && !(error instanceof CliError)) return EXIT.interrupted;
    const shown = error instanceof CommanderError ? usageErrorOf(usage, wanted) : error;
    return await sayError(io, shown, ownWords(argv).includes('--json'));
  } finally {
    await Promise.allSettled(written);
  }
}

/** One line for the error, one for the hint; with `--json` an object on one line. Returns the exit code. */
export async function sayError(io: Io, error: unknown, json: boolean): Promise<number> {
  const { exitCode, message, hint } = reportOf(error);
  const debug = (io.env['OPEN_COMPUTE_DEBUG'] ?? '') !== '' && error instanceof Error ? (error.stack ?? '') : '';
  const text = json
    ? `${toJson({ error: { message, hint, exitCode } })}\n`
    : `open-compute: ${printableText(message)}\n${hint === '' ? '' : `hint: ${printableLine(hint)}\n`}`;
  await io.stderr.write(debug === '' ? text : `${text}${printableText(debug)}\n`).catch(() => undefined);
  return exitCode;
}

/** Without what follows `--`: those are the words of another command. */
function ownWords(argv: readonly string[]): readonly string[] {
  const end = argv.indexOf('--');
  return end < 0 ? argv : argv.slice(0, end);
}

/** The first word that is no option; behind `help` the second one. */
function wantedCommand(argv: readonly string[]): string | undefined {
  const words = argv.filter((word) => !word.startsWith('-'));
  return words[0] === 'help' ? words[1] : words[0];
}

function usageErrorOf(usage: string, wanted: string | undefined): CliError {
  const known = COMMANDS.some(({ name }) => name === wanted);
  const [message = '', ...more] = usage
    .replace(/^error: /, '')
    .trim()
    .split('\n');
  const help = `open-compute ${known ? `${String(wanted)} ` : ''}--help`;
  return new CliError(EXIT.usage, message, [...more, `see ${help}`].join(' ').replace(/^\((.*?)\)/, '$1;'));
}
