// Runs WebTorrent in a headless browser: serves it the page beside this file, the torrent, and the files if it is the
// seeder, and writes the files that it downloads. Runs until it is told to quit (SIGINT or SIGTERM).
//
// Usage: driver.mjs BROWSER BUNDLE TORRENT DIRECTORY STATE seeder|leecher [CERTIFICATE]

import { spawn } from 'node:child_process'
import { createHash, X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { dirname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'

const LEAVE_MS_MAX = 10_000
const PAGE = join(dirname(fileURLToPath(import.meta.url)), 'page.html')

const [browser, bundle, torrent, directory, state, role, certificate] = process.argv.slice(2)

const quit = Promise.race(['SIGINT', 'SIGTERM'].map(signal => once(process, signal)))

// Resolved when the page reports that it has left the swarm.
let resolveLeft
const left = new Promise(resolve => { resolveLeft = resolve })

const server = createServer((request, response) => {
  answer(request).then(
    body => response.writeHead(200, { 'content-type': typeOf(request.url) }).end(body),
    error => {
      console.log(`${request.method} ${request.url}: ${error.message}`)
      response.writeHead(500).end()
    }
  )
})
server.listen(0, '127.0.0.1')
await once(server, 'listening')

const page = `http://127.0.0.1:${server.address().port}/`
// Killed together with this process, so that no browser outlives the test.
const child = spawn('setpriv', ['--pdeathsig', 'KILL', '--', browser, ...await browserOptions(), page], {
  stdio: ['ignore', 'inherit', 'inherit']
})
const ended = once(child, 'exit')
await Promise.race([quit, ended.then(([code]) => { throw new Error(`the browser ended: ${code}`) })])
await Promise.race([left, new Promise(resolve => setTimeout(resolve, LEAVE_MS_MAX))])
child.kill('SIGTERM')
await ended
process.exit(0)

/** Answers a request of the page. */
async function answer (request) {
  const path = decodeURIComponent(new URL(request.url, page).pathname)
  switch (`${request.method} ${path}`) {
    case 'GET /': return readFile(PAGE)
    case 'GET /webtorrent.js': return readFile(bundle)
    case 'GET /torrent': return readFile(torrent)
    case 'GET /role': return role
    // Answered when the page should quit.
    case 'GET /quit': return quit.then(() => 'now')
    case 'POST /log': return console.log(`page: ${await bodyOf(request)}`)
    case 'POST /left': return resolveLeft()
  }
  if (request.method === 'GET' && path.startsWith('/files/')) return readFile(fileOf(path))
  if (request.method === 'PUT' && path.startsWith('/files/')) return save(fileOf(path), await bodyOf(request))
  throw new Error('not found')
}

function fileOf (path) {
  return join(directory, normalize(path.slice('/files'.length)))
}

async function save (file, bytes) {
  await mkdir(dirname(file), { recursive: true })
  await writeFile(file, bytes)
}

async function bodyOf (request) {
  const chunks = []
  for await (const chunk of request) chunks.push(chunk)
  return Buffer.concat(chunks)
}

function typeOf (url) {
  if (url === '/') return 'text/html'
  return url.endsWith('.js') ? 'text/javascript' : 'application/octet-stream'
}

async function browserOptions () {
  const options = [
    '--headless',
    `--user-data-dir=${state}`,
    // Its sandbox needs more rights than root of a user namespace has. It only ever loads the page and the tracker.
    '--no-sandbox',
    '--disable-gpu',
    '--disable-dev-shm-usage',
    '--disable-extensions',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    '--no-first-run',
    '--no-default-browser-check',
    // Otherwise peers would get names instead of addresses, which they would have to resolve by multicast.
    '--disable-features=WebRtcHideLocalIpsWithMdns',
    // Fatal errors only, because it complains about every missing desktop service.
    '--log-level=3'
  ]
  if (certificate) options.push(`--ignore-certificate-errors-spki-list=${await keyHash(certificate)}`)
  return options
}

/** Returns the hash that names the one key that is trusted without an authority. */
async function keyHash (file) {
  const { publicKey } = new X509Certificate(await readFile(file))
  return createHash('sha256').update(publicKey.export({ type: 'spki', format: 'der' })).digest('base64')
}
