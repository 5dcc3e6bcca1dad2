// A WebRTC stub that suffices for signalling: it creates and stores descriptions, but never connects.

let made = 0

export class RTCPeerConnection {
  iceConnectionState = 'new'
  iceGatheringState = 'complete'
  signalingState = 'stable'
  connectionState = 'new'
  localDescription = null
  remoteDescription = null

  createDataChannel (label) {
    return { label, readyState: 'connecting', bufferedAmount: 0, close () {} }
  }

  async createOffer () {
    return description('offer')
  }

  async createAnswer () {
    return description('answer')
  }

  async setLocalDescription (own) {
    this.localDescription = own
    // There are no addresses to gather.
    queueMicrotask(() => this.onicecandidate?.({ candidate: null }))
  }

  async setRemoteDescription (others) {
    this.remoteDescription = others
  }

  close () {
    this.connectionState = 'closed'
  }
}

export class RTCSessionDescription {
  constructor ({ type, sdp }) {
    Object.assign(this, { type, sdp })
  }
}

export class RTCIceCandidate {}

/** As long as a real one, unique, and with every kind of character that JSON escapes. */
function description (type) {
  made += 1
  const lines = Array.from({ length: 40 }, (_, line) => `a=candidate:${line} 1 udp 2122260223 192.0.2.1 ${made} typ host`)
  return { type, sdp: `v=0\r\ns=${type} ${made} "\\/ \u0001\u007f\u00ff\u2028 \u{1f41f}\r\n${lines.join('\r\n')}\r\n` }
}
