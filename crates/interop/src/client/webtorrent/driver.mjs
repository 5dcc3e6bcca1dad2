// Runs WebTorrent in a browser without a window: serves it the page beside this file, gives it the torrent, and the
// files if it has them, and writes those that it downloads. Until it is told to quit (SIGINT or SIGTERM).
//
// Usage: driver.mjs BROWSER BUNDLE TORRENT DIRECTORY STATE seeder|leecher [CERTIFICATE]

import { spawn } from 'node:child_process'
import { createHash, X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { dirname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'

const GOODBYE_MS_MAX = 10_000
const PAGE = join(dirname(fileURLToPath(import.meta.url)), 'page.html')

const [browser, bundle, torrent, directory, state, role, certificate] = process.argv.slice(2)

const quit = Promise.race(['SIGINT', 'SIGTERM'].map(signal => once(process, signal)))

// What the page has to say at the end.
let tellLeft
const left = new Promise(resolve => { tellLeft = resolve })

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
// Killed if this process is, so that nobody is left should the test die.
const child = spawn('setpriv', ['--pdeathsig', 'KILL', '--', browser, ...await browserOptions(), page], {
  stdio: ['ignore', 'inherit', 'inherit']
})
const ended = once(child, 'exit')
await Promise.race([quit, ended.then(([code]) => { throw new Error(`the browser ended: ${code}`) })])
await Promise.race([left, new Promise(resolve => setTimeout(resolve, GOODBYE_MS_MAX))])
child.kill('SIGTERM')
await ended
process.exit(0)

/** What the page is given, and what becomes of what it says. */
async function answer (request) {
  const path = decodeURIComponent(new URL(request.url, page).pathname)
  switch (`${request.method} ${path}`) {
    case 'GET /': return readFile(PAGE)
    case 'GET /webtorrent.js': return readFile(bundle)
    case 'GET /torrent': return readFile(torrent)
    case 'GET /role': return role
    // Answered when it is time.
    case 'GET /quit': return quit.then(() => 'now')
    case 'POST /log': return console.log(`page: ${await bodyOf(request)}`)
    case 'POST /left': return tellLeft()
  }
  if (request.method === 'GET' && path.startsWith('/files/')) return readFile(fileOf(path))
  if (request.method === 'PUT' && path.startsWith('/files/')) return keep(fileOf(path), await bodyOf(request))
  throw new Error('nothing is there')
}

function fileOf (path) {
  return join(directory, normalize(path.slice('/files'.length)))
}

async function keep (file, bytes) {
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
    // Its sandbox needs more than root of a user namespace can give; it only ever sees the page and the tracker.
    '--no-sandbox',
    '--disable-gpu',
    '--disable-dev-shm-usage',
    '--disable-extensions',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    '--no-first-run',
    '--no-default-browser-check',
    // Otherwise peers would be given names instead of addresses, for which they would have to ask by multicast.
    '--disable-features=WebRtcHideLocalIpsWithMdns',
    // Fatal errors only: it misses all the services of a desktop.
    '--log-level=3'
  ]
  if (certificate) options.push(`--ignore-certificate-errors-spki-list=${await keyHash(certificate)}`)
  return options
}

/** Names the one key that is trusted without an authority. */
async function keyHash (file) {
  const { publicKey } = new X509Certificate(await readFile(file))
  return createHash('sha256').update(publicKey.export({ type: 'spki', format: 'der' })).digest('base64')
}
