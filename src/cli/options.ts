import { InvalidArgumentError, Option } from 'commander';

/** Options that several commands share, and what their values may be. */

export interface JsonOption {
  readonly json?: true;
}

export interface ClientOptions extends JsonOption {
  readonly credentials?: string;
}

export const jsonOption = (): Option => new Option('--json', 'print JSON instead of text for people');

export const credentialsOption = (): Option =>
  new Option('--credentials <file>', 'credentials file; default: the file named by OPEN_COMPUTE_CREDENTIALS');

export const formatOption = <T extends string>(choices: readonly T[], fallback: T): Option =>
  new Option('--format <format>', 'what to print').choices(choices).default(fallback);

/** A whole number from `min` on. Written plainly: `1e3`, `0x10` and ` 5` are refused. */
export const wholeNumber =
  (min: number, max = Number.MAX_SAFE_INTEGER) =>
  (text: string): number => {
    const value = /^\d{1,16}$/.test(text) ? Number(text) : NaN;
    if (value >= min && value <= max) return value;
    throw new InvalidArgumentError(
      max === Number.MAX_SAFE_INTEGER
        ? `It must be a whole number from ${String(min)} on.`
        : `It must be a whole number from ${String(min)} to ${String(max)}.`,
    );
  };

/** A number, with a decimal point if need be, above zero and at most `max`. */
export const positiveNumber =
  (max: number) =>
  (text: string): number => {
    const value = /^\d{1,12}(\.\d{1,6})?$/.test(text) ? Number(text) : NaN;
    if (value > 0 && value <= max) return value;
    throw new InvalidArgumentError(`It must be a number above 0, at most ${String(max)}.`);
  };

export interface ListenAddress {
  readonly host: string;
  /** 0: any free one. */
  readonly port: number;
}

/** `HOST:PORT`, `[IPv6]:PORT`. */
export function listenAddress(text: string): ListenAddress {
  const parts = /^(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})$/.exec(text);
  const host = parts?.[1] ?? parts?.[2];
  const port = Number(parts?.[3]);
  if (host === undefined || port > 65_535) {
    throw new InvalidArgumentError('It must be HOST:PORT, such as 127.0.0.1:7077 or [::1]:7077.');
  }
  return { host, port };
}

/** Collects a repeatable option. */
export const collect = (value: string, before: readonly string[] = []): readonly string[] => [...before, value];
