// Lets the client have the WebRTC beside this file. The one that it would load is a program that its package downloads.

export function resolve (specifier, context, next) {
  if (specifier !== 'webrtc-polyfill') return next(specifier, context)
  return { url: new URL('webrtc.mjs', import.meta.url).href, shortCircuit: true }
}
