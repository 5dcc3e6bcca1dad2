// Two clients of npm's `bittorrent-tracker` meet at a tracker: they are counted, introduced to each other, and leave.
// Ends with 0 if all goes as it should.
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

// Bytes that JSON has to escape, that UTF-8 writes in two, and that are no text at all.
const LEECHER = '002209' + '0d5c2f' + '7f80ff' + 'c328'.repeat(5) + '01'
const SEEDER = '2d5757' + 'e28082' + 'edbfbf' + '00ff'.repeat(5) + '02'
const UNKNOWN = 'ff'.repeat(20)

// Clients of one URL share a socket, so each has a URL of its own: the path does not matter.
const leecher = client(LEECHER, `${announce}/leecher`)
const seeder = client(SEEDER, `${announce}/seeder`)

step('the leecher is counted')
leecher.start({ left: 1000 })
await counted(leecher, { complete: 0, incomplete: 1 })

step('the seeder is counted, and both are introduced')
const [asked, answered] = [once(leecher, 'peer'), once(seeder, 'peer')]
seeder.start({ left: 0 })
await counted(seeder, { complete: 1, incomplete: 1 })
const [[byOffer], [byAnswer]] = await Promise.all([asked, answered])
assert.equal(byOffer.id, SEEDER)
assert.equal(byAnswer.id, LEECHER)
const [offering, answering] = [byAnswer._pc, byOffer._pc]
assert.equal(answering.remoteDescription.sdp, offering.localDescription.sdp, 'the offer arrives as it was')
assert.equal(offering.remoteDescription.sdp, answering.localDescription.sdp, 'the answer arrives as it was')
assert.equal(answering.remoteDescription.type, 'offer')
assert.equal(offering.remoteDescription.type, 'answer')

step('the leecher completes')
leecher.complete({ left: 0 })
await counted(leecher, { complete: 2, incomplete: 0 })

step('one torrent is scraped, and several')
assert.deepEqual(await scraped(leecher, [infoHash]), { [infoHash]: [2, 0, 1] })
assert.deepEqual(await scraped(seeder, [infoHash, UNKNOWN]), { [infoHash]: [2, 0, 1], [UNKNOWN]: [0, 0, 0] })

step('the seeder leaves by a word, the other without one')
seeder.stop()
await counted(seeder, { complete: 1, incomplete: 0 })
await Promise.all([seeder, leecher].map(client => new Promise(resolve => client.destroy(resolve))))
step('all went well')
process.exit(0)

function client (peerId, url) {
  const client = new Client({ infoHash, peerId, announce: url, port: 6881 })
  for (const bad of ['error', 'warning']) client.on(bad, error => { throw error })
  return client
}

/** Waits for the next answer to an announce. */
async function counted (client, counts) {
  const [{ complete, incomplete, interval }] = await once(client, 'update')
  assert.deepEqual({ complete, incomplete }, counts)
  assert.ok(interval > 0, `an interval of ${interval}`)
}

/** Complete, incomplete and downloaded of each torrent. */
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
