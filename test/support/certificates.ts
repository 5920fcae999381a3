import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const FIXTURES = join(import.meta.dirname, '../../fixtures/tls');

export interface Certificate {
  readonly cert: string;
  readonly key: string;
  /** What a client has to trust: the certificate itself. */
  readonly trust: string;
}

/** `here` is good for localhost, `elsewhere` for another name. PEM texts. */
export function certificate(name: 'here' | 'elsewhere'): Certificate {
  const cert = readFileSync(join(FIXTURES, `${name}.cert.pem`), 'utf8');
  return { cert, key: readFileSync(join(FIXTURES, `${name}.key.pem`), 'utf8'), trust: cert };
}
