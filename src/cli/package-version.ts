import { readFileSync } from 'node:fs';

/** Two folders up in the sources as well as in the build. */
const PACKAGE = new URL('../../package.json', import.meta.url);

/** This release, as package.json has it. */
export function packageVersion(): string {
  const content: unknown = JSON.parse(readFileSync(PACKAGE, 'utf8'));
  const version = typeof content === 'object' && content !== null && 'version' in content ? content.version : null;
  return typeof version === 'string' ? version : 'unknown';
}
