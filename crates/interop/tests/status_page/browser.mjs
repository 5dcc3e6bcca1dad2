// Opens the status page in a headless browser and prints what it finds as JSON.
//
// Usage: browser.mjs BROWSER URL STATE TOKEN [SCREENSHOTS]. An empty TOKEN means that none is asked for.
//
// It speaks the DevTools protocol over a pipe (file descriptors 3 and 4 of the browser), so it needs no package.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'

const PATIENCE_MS = 60_000
const VIEWS = [
  { name: 'phone-light', width: 390, height: 844, mobile: true, theme: 'light' },
  { name: 'phone-dark', width: 390, height: 844, mobile: true, theme: 'dark' },
  { name: 'desktop-light', width: 1360, height: 900, mobile: false, theme: 'light' },
  { name: 'desktop-dark', width: 1360, height: 900, mobile: false, theme: 'dark' }
]

const [program, url, state, token, screenshots] = process.argv.slice(2)

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
    // A wrong token first; then the right one, typed.
    for (const typed of ['wrong', token]) {
      await until('document.activeElement?.id === "token"')
      await page('Input.insertText', { text: typed })
      await press('Enter', 13, '\r')
      if (typed === 'wrong') await until('document.getElementById("login-error").textContent !== ""')
    }
  }
  // Rates need two snapshots.
  await until('document.getElementById("link").textContent === "Live" && state.before !== null')
  const view = await evaluate(`(${examine})()`)
  view.theme = await evaluate('document.documentElement.dataset.theme')
  view.documents = requests.filter(address => address === url).length
  view.foreign = requests.filter(address => !address.startsWith(url) && !address.startsWith('data:'))
  found.views[name] = view
  if (screenshots) {
    const { cssContentSize } = await page('Page.getLayoutMetrics')
    const clip = { x: 0, y: 0, width, height: cssContentSize.height, scale: 1 }
    const { data } = await page('Page.captureScreenshot', { clip, captureBeyondViewport: true })
    await writeFile(join(screenshots, `${name}.png`), Buffer.from(data, 'base64'))
  }
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
found.figures = await evaluate('({ stats: state.stats, tiles: Object.fromEntries([...document.querySelectorAll("[data-tile]")].map(node => [node.dataset.tile, node.textContent])) })')

// Names from outside stay text.
found.markup = await evaluate(`(() => {
  const name = '<img src=x onerror=document.title=1>\\u0007\\u202e'
  const stats = structuredClone(state.stats)
  stats.monotonic_ms += 1
  stats.refusals.push({ protocol: name, family: name, reason: name, count: 1 })
  stats.clients.push({ software: name, share: 1, versions: [[name, 1]] })
  stats.top_swarms.push({ info_hash: name, seeders: 1, leechers: 1, completed: 1 })
  stats.list_sources.push({ list: name, source: name, failures: 1, age_s: 1 })
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
process.stdout.write(JSON.stringify(found) + '\n')
input.end()
browser.kill('SIGTERM')
await once(browser, 'exit')
process.exit(0)
