// Makes the client load the WebRTC stub beside this file. Its own WebRTC is a program that the package downloads.

export function resolve (specifier, context, next) {
  if (specifier !== 'webrtc-polyfill') return next(specifier, context)
  return { url: new URL('webrtc.mjs', import.meta.url).href, shortCircuit: true }
}
