import { isIP } from 'node:net';

/** Every way to write "all addresses of this machine" that a listen option takes. */
function isWildcard(host: string): boolean {
  if (host === '' || host === '*' || /^[0.]+$/.test(host)) return true;
  return isIP(host) === 6 && (/^[0:]+$/.test(host) || /^[0:]+:ffff:(0\.0\.0\.0|0{1,4}:0{1,4})$/i.test(host));
}

const plain = (host: string): string => host.trim().replace(/^\[(.*)\]$/, '$1');

/**
 * The name or address under which agents on other machines dial the gateway: what is advertised, else what it listens on,
 * else the machine's own name. Throws an Error that says what to do when that would be no place to dial.
 */
export function advertisedName(listenHost: string, advertise: string | null, hostname: string): string {
  if (advertise !== null) {
    const name = plain(advertise);
    if (isWildcard(name)) {
      throw new Error(
        `agents cannot dial "${advertise}", which means every address of this machine: advertise a name or an address that the compute nodes reach`,
      );
    }
    if (isIP(name) === 0 && !/^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$/.test(name)) {
      throw new Error(`"${advertise}" is neither a host name nor an address: advertise one, without a port`);
    }
    return name;
  }
  const listens = plain(listenHost);
  if (!isWildcard(listens)) return listens;
  const own = plain(hostname);
  if (isWildcard(own) || own === 'localhost' || own.startsWith('localhost.')) {
    throw new Error(
      `listening on every address, and this machine calls itself "${hostname}": say which name or address the compute nodes reach`,
    );
  }
  return own;
}
