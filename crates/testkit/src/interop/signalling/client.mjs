// Two clients of npm's `bittorrent-tracker` meet at a tracker: it counts them, relays their signalling, and sees them
// leave. The exit code is 0 if every check passes.
//
// Usage: client.mjs PACKAGE INFO_HASH ANNOUNCE_URL

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { register } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [directory, infoHash, announce] = process.argv.slice(2)
register('./hooks.mjs', import.meta.url)
const { default: Client } = await import(pathToFileURL(join(directory, 'client.js')))

// Bytes that JSON has to escape, that take two bytes in UTF-8, and that are not text at all.
const LEECHER = '002209' + '0d5c2f' + '7f80ff' + 'c328'.repeat(5) + '01'
const SEEDER = '2d5757' + 'e28082' + 'edbfbf' + '00ff'.repeat(5) + '02'
const UNKNOWN = 'ff'.repeat(20)

// Clients with the same URL share a socket, so each has its own URL. The tracker ignores the path.
const leecher = client(LEECHER, `${announce}/leecher`)
const seeder = client(SEEDER, `${announce}/seeder`)

step('the tracker counts the leecher')
leecher.start({ left: 1000 })
await counted(leecher, { complete: 0, incomplete: 1 })

step('the tracker counts the seeder and relays an offer and an answer')
const [asked, answered] = [once(leecher, 'peer'), once(seeder, 'peer')]
seeder.start({ left: 0 })
await counted(seeder, { complete: 1, incomplete: 1 })
const [[byOffer], [byAnswer]] = await Promise.all([asked, answered])
assert.equal(byOffer.id, SEEDER)
assert.equal(byAnswer.id, LEECHER)
const [offering, answering] = [byAnswer._pc, byOffer._pc]
assert.equal(answering.remoteDescription.sdp, offering.localDescription.sdp, 'the offer arrives unchanged')
assert.equal(offering.remoteDescription.sdp, answering.localDescription.sdp, 'the answer arrives unchanged')
assert.equal(answering.remoteDescription.type, 'offer')
assert.equal(offering.remoteDescription.type, 'answer')

step('the leecher completes')
leecher.complete({ left: 0 })
await counted(leecher, { complete: 2, incomplete: 0 })

step('one torrent is scraped, then several')
assert.deepEqual(await scraped(leecher, [infoHash]), { [infoHash]: [2, 0, 1] })
assert.deepEqual(await scraped(seeder, [infoHash, UNKNOWN]), { [infoHash]: [2, 0, 1], [UNKNOWN]: [0, 0, 0] })

step('the seeder announces that it stops, the leecher just disconnects')
seeder.stop()
await counted(seeder, { complete: 1, incomplete: 0 })
await Promise.all([seeder, leecher].map(client => new Promise(resolve => client.destroy(resolve))))
step('every check passed')
process.exit(0)

function client (peerId, url) {
  const client = new Client({ infoHash, peerId, announce: url, port: 6881 })
  for (const bad of ['error', 'warning']) client.on(bad, error => { throw error })
  return client
}

/** Waits for the reply to the next announce and checks its counts. */
async function counted (client, counts) {
  const [{ complete, incomplete, interval }] = await once(client, 'update')
  assert.deepEqual({ complete, incomplete }, counts)
  assert.ok(interval > 0, `an interval of ${interval}`)
}

/** Scrapes torrents and returns complete, downloaded and incomplete counts of each. */
function scraped (client, infoHashes) {
  const files = {}
  return new Promise(resolve => {
    client.on('scrape', function take ({ infoHash, complete, incomplete, downloaded }) {
      files[infoHash] = [complete, incomplete, downloaded]
      if (Object.keys(files).length < infoHashes.length) return
      client.off('scrape', take)
      resolve(files)
    })
    client.scrape({ infoHash: infoHashes.length === 1 ? infoHashes[0] : infoHashes })
  })
}

function step (text) {
  console.log(text)
}
