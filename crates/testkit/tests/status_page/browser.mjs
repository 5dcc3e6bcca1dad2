// Opens the status page and the public statistics in a headless browser and prints what it finds as JSON.
//
// Usage: browser.mjs BROWSER URL PUBLIC_URL STATE TOKEN [SCREENSHOTS]. An empty TOKEN means that none is asked for.
//
// It speaks the DevTools protocol over a pipe (file descriptors 3 and 4 of the browser), so it needs no package.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'

const PATIENCE_MS = 60_000
const VIEWS = [
  { name: 'phone-light', width: 360, height: 844, mobile: true, theme: 'light' },
  { name: 'phone-dark', width: 390, height: 844, mobile: true, theme: 'dark' },
  { name: 'desktop-light', width: 1280, height: 900, mobile: false, theme: 'light' },
  { name: 'desktop-dark', width: 1440, height: 900, mobile: false, theme: 'dark' }
]

const [program, url, publicUrl, state, token, screenshots] = process.argv.slice(2)

// Killed together with this process, so that no browser outlives the test.
const browser = spawn('setpriv', ['--pdeathsig', 'KILL', '--', program,
  '--headless', '--remote-debugging-pipe', `--user-data-dir=${state}`, '--no-sandbox', '--disable-gpu',
  '--disable-dev-shm-usage', '--disable-extensions', '--disable-background-networking', '--disable-component-update',
  '--disable-sync', '--no-first-run', '--no-default-browser-check', '--log-level=3', 'about:blank'
], { stdio: ['ignore', 'inherit', 'inherit', 'pipe', 'pipe'] })
const [, , , input, output] = browser.stdio

let number = 0
let unread = ''
const waiting = new Map()
const problems = []
let requests = []

output.on('data', chunk => {
  const messages = (unread + chunk).split('\0')
  unread = messages.pop()
  messages.map(message => JSON.parse(message)).forEach(receive)
})

function receive ({ id, method, params, result, error }) {
  if (id) {
    const { resolve, reject } = waiting.get(id)
    waiting.delete(id)
    return error ? reject(new Error(error.message)) : resolve(result)
  }
  if (method === 'Runtime.consoleAPICalled') problems.push(`console: ${params.args.map(arg => arg.value ?? arg.description)}`)
  if (method === 'Runtime.exceptionThrown') problems.push(`exception: ${params.exceptionDetails.exception?.description}`)
  if (method === 'Log.entryAdded') problems.push(`log: ${params.entry.text} ${params.entry.url ?? ''}`)
  if (method === 'Fetch.requestPaused') {
    const { requestId } = params
    const body = Buffer.from(JSON.stringify({ error: 'too many feeds are open' })).toString('base64')
    page('Fetch.fulfillRequest', { requestId, responseCode: 503, body })
  }
  if (method === 'Network.requestWillBeSent') requests.push(params.request.url)
}

function call (method, params = {}, sessionId = undefined) {
  number += 1
  input.write(JSON.stringify({ id: number, method, params, sessionId }) + '\0')
  return new Promise((resolve, reject) => waiting.set(number, { resolve, reject }))
}

const { targetInfos } = await call('Target.getTargets')
const { targetId } = targetInfos.find(({ type }) => type === 'page')
const { sessionId } = await call('Target.attachToTarget', { targetId, flatten: true })
const page = (method, params) => call(method, params, sessionId)

/** Evaluates an expression in the page. */
async function evaluate (expression) {
  const { result, exceptionDetails } = await page('Runtime.evaluate', { expression, returnByValue: true, awaitPromise: true })
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text)
  return result.value
}

/** Waits until an expression is true. */
async function until (expression) {
  const poll = `new Promise((resolve, reject) => {
    const end = performance.now() + ${PATIENCE_MS}
    const look = () => (${expression}) ? resolve(true) : performance.now() > end ? reject(new Error("in vain")) : setTimeout(look, 50)
    look()
  })`
  await evaluate(poll).catch(error => { throw new Error(`${expression}: ${error.message}; ${problems}`) })
}

async function press (key, code, text = '') {
  await page('Input.dispatchKeyEvent', { type: text ? 'keyDown' : 'rawKeyDown', key, windowsVirtualKeyCode: code, text })
  await page('Input.dispatchKeyEvent', { type: 'keyUp', key, windowsVirtualKeyCode: code })
}

/** Takes a picture of what the window shows, small enough for a document. */
async function takeScreenshot (name, width, height) {
  if (!screenshots) return
  const clip = { x: 0, y: 0, width, height, scale: 0.75 }
  const { data } = await page('Page.captureScreenshot', { clip })
  await writeFile(join(screenshots, `${name}.png`), Buffer.from(data, 'base64'))
}

/** Runs in the page: shows the figures of a large tracker, with long numbers and names. Returns the cards whose content is cut. */
function load () {
  const large = (value, key) => {
    if (Array.isArray(value)) return value.map(part => large(part, key))
    if (value !== null && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, large(part, key)]))
    return typeof value === 'number' && !/_s$|_ms$|^max$/.test(key) ? 888888888 : value
  }
  const { stats } = state
  const shown = structuredClone(stats)
  shown.monotonic_ms += 1
  for (const name of ['traffic', 'swarms', 'datagrams', 'relays', 'connections', 'lists']) shown[name] = large(shown[name])
  for (const worker of shown.workers) Object.assign(worker, { busy: 0.8888, interval_raise: 0.8888, batches: 888888888, kernel_drops: 88888 })
  shown.memory.per_peer = 112.4
  for (const reason of ['wrong connection id', 'malformed_info_hash']) shown.refusals.push({ protocol: 'webtorrent', family: 'v6', reason, count: 888888888 })
  shown.top_swarms = [{ info_hash: 'abcdef0123456789abcdef0123456789abcdef01', seeders: 888888, leechers: 888888, completed: 888888888 }]
  shown.clients = [{ software: 'libtorrent (Rasterbar)', share: 0.8888, versions: [['4.6.5', 0.8888], ['5.0.1', 0.0888]] }]
  shown.certificates = [{ file: '/etc/shoal/tls/tracker.example.org/fullchain.pem', names: ['tracker.example.org'], not_after_unix_s: shown.now_unix_s + 8e6 }]
  shown.list_sources = [{ list: 'deny', source: 'https://lists.example.org/some/long/path/of/a/blocklist.txt', failures: 88888, faulty_lines: 88888, age_s: 266400 }]
  show({ stats: shown, samples: [null, null] })
  const isCut = node => node.scrollWidth > node.clientWidth
  return [...document.querySelectorAll('.card, .card > div, .note')].filter(isCut).map(node => `${node.scrollWidth - node.clientWidth} px of ${node.textContent}`)
}

/** Runs in the page: what a reader could not see, read or reach. */
function examine () {
  const parse = color => color.match(/[\d.]+/g).map(Number)
  const light = ([r, g, b]) => [r, g, b].map(value => {
    const part = value / 255
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4
  }).reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0)
  const back = node => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor)
      if (color.length < 4 || color[3] > 0) return color
    }
    return [255, 255, 255]
  }
  const faint = []
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.closest('script, style, noscript')) continue
    const style = getComputedStyle(node)
    const text = parse(node.namespaceURI.endsWith('svg') ? style.fill : style.color)
    const [one, other] = [light(text), light(back(node))].sort((a, b) => b - a)
    const contrast = (one + 0.05) / (other + 0.05)
    if (contrast < 4.5) faint.push(`${contrast.toFixed(2)}: ${walker.currentNode.data.trim()}`)
  }
  const controls = [...document.querySelectorAll('button, input, a[href], [tabindex="0"]')].filter(node => node.checkVisibility())
  const name = node => node.getAttribute('aria-label') ?? node.labels?.[0]?.textContent ?? node.textContent
  return {
    faint,
    nameless: controls.filter(node => !name(node).trim()).map(node => node.outerHTML),
    charts: [...document.querySelectorAll('svg[role=img]')].filter(node => !node.getAttribute('aria-label')).length,
    tables: [...document.querySelectorAll('table')].filter(node => !node.caption || !node.querySelector('th[scope=col]') || !node.querySelector('th[scope=row]')).length,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    landmarks: ['header', 'main', 'footer', 'h1'].filter(name => document.querySelectorAll(`body ${name}`).length !== 1),
    handles: [...document.querySelectorAll('button')].filter(node => node.checkVisibility() && node.getBoundingClientRect().height < 24).length
  }
}

const found = { views: {} }
for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await page(`${domain}.enable`)
for (const { name, width, height, mobile, theme } of VIEWS) {
  await page('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile })
  await page('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: theme }] })
  requests = []
  await page('Page.navigate', { url })
  await until('document.readyState === "complete"')
  if (token && name === 'phone-light') {
    // Tokens that cannot be sent or are wrong first; then the right one, typed.
    const refusals = { 'тест': 'A token consists of', wrong: 'The tracker does not accept' }
    for (const typed of ['тест', 'wrong', token]) {
      await until('document.activeElement?.id === "token"')
      await page('Input.insertText', { text: typed })
      await press('Enter', 13, '\r')
      if (refusals[typed]) await until(`document.getElementById("login-error").textContent.startsWith("${refusals[typed]}")`)
    }
  }
  // Rates need two snapshots.
  await until('document.getElementById("link").textContent === "Live" && state.before !== null')
  const view = await evaluate(`(${examine})()`)
  view.theme = await evaluate('document.documentElement.dataset.theme')
  view.documents = requests.filter(address => address === url).length
  view.foreign = requests.filter(address => !address.startsWith(url) && !address.startsWith('data:'))
  found.views[name] = view
  await takeScreenshot(name, width, height)
  view.cut = await evaluate(`(${load})()`)
  await until('total(state.stats.traffic[0].requests) < 888888888')
}

// The keyboard reaches every control in order, and works them.
await evaluate('document.activeElement.blur()')
const order = []
for (let index = 0; index < 4; index += 1) {
  await press('Tab', 9)
  order.push(await evaluate('document.activeElement.textContent'))
}
found.order = order
await press(' ', 32, ' ')
found.range = await evaluate('state.range')

// A chart of times, of which the first and the last are not known.
found.times = await evaluate(`(() => {
  const chart = CHARTS.find(({ title }) => title === 'Time in the tracker');
  const samples = [[1, null, null], [11, 25, 250], [21, null, null]];
  chart.show(samples.map(([time, p50_us, p99_us]) => ({ time, p50_us, p99_us })), 21, 60, 10);
  return { label: chart.svg.getAttribute('aria-label'), curves: chart.svg.querySelectorAll('.curve').length };
})()`)
// Ticks are at times that hours and minutes tell, for each period of the charts and both widths.
found.ticks = await evaluate(`[600, 1800, 3600, 14400, 43200, 86400].map(span => [4, 6].map(max => {
  const times = ticks(1700000123 - span, 1700000123, max);
  const isExact = times.every(time => time % 60 === 0 && time >= 1700000123 - span && time <= 1700000123);
  return isExact && times.length >= 2 && times.length <= max;
}))`)
found.collecting = await evaluate(`(() => {
  CHARTS[0].show(state.history.hour.samples.slice(0, 1), state.stats.now_unix_s, 600, 10);
  const { svg } = CHARTS[0];
  return { curves: svg.querySelectorAll('.curve').length, says: svg.textContent.includes('Collecting samples') };
})()`)
found.figures = await evaluate('({ stats: state.stats, tiles: Object.fromEntries([...document.querySelectorAll("[data-tile]")].map(node => [node.dataset.tile, node.textContent])) })')

// Names from outside stay text.
found.markup = await evaluate(`(() => {
  const name = '<img src=x onerror=document.title=1>\\u0007\\u202e'
  const stats = structuredClone(state.stats)
  stats.monotonic_ms += 1
  stats.refusals.push({ protocol: name, family: name, reason: name, count: 1 })
  stats.clients.push({ software: name, share: 1, versions: [[name, 1]] })
  stats.top_swarms.push({ info_hash: name, seeders: 1, leechers: 1, completed: 1 })
  stats.list_sources.push({ list: name, source: name, failures: 1, faulty_lines: 0, age_s: 1 })
  stats.certificates.push({ file: name, names: [name], not_after_unix_s: 1 })
  show({ stats, samples: [null, null] })
  return { images: document.querySelectorAll('main img').length, title: document.title, texts: document.body.textContent.includes('<img src=x') }
})()`)
found.problems = problems.filter(problem => !(token && problem.includes('401')))
// The content security policy holds: the page cannot run other scripts or load anything.
found.policy = await evaluate(`new Promise(resolve => {
  addEventListener('securitypolicyviolation', event => resolve(event.violatedDirective), { once: true })
  const script = document.createElement('script')
  try { script.textContent = 'document.title = "run"' } catch { resolve('require-trusted-types-for') }
  document.head.append(script)
})`)
// The page tells the words of a refusal, and is live again when there is none.
const problem = 'document.getElementById("problem")'
await page('Fetch.enable', { patterns: [{ urlPattern: '*/status/history' }] })
await page('Page.navigate', { url })
await until(`document.readyState === "complete" && ${problem}.checkVisibility()`)
found.refused = await evaluate(`[${problem}.textContent, document.getElementById("link").textContent]`)
await page('Fetch.disable')
await until(`document.getElementById("link").textContent === "Live" && ${problem}.hidden`)
found.pause = await evaluate('[0, 1, 30].map(failures => { state.failures = failures; return pauseMs() })')
// The public statistics of a large tracker fit the width of a phone.
await page('Emulation.setDeviceMetricsOverride', { width: 360, height: 844, deviceScaleFactor: 1, mobile: true })
await page('Page.navigate', { url: publicUrl })
await until('document.readyState === "complete" && document.querySelectorAll("td").length > 0')
found.public = await evaluate(`(() => {
  for (const cell of document.querySelectorAll('td')) cell.textContent = '8,888,888,888'
  return Math.max(document.documentElement.scrollWidth, ...[...document.querySelectorAll('table')].map(table => table.getBoundingClientRect().right))
})()`)
await takeScreenshot('public', 360)
process.stdout.write(JSON.stringify(found) + '\n')
input.end()
browser.kill('SIGTERM')
await once(browser, 'exit')
process.exit(0)
