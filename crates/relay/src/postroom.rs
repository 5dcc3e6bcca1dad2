//! What waits for the connections of one worker, and what its connections have to say to those of others.
//!
//! All that is said to a connection in one turn is gathered here and leaves in one piece. Whatever is written is bytes
//! that are ready to be sent; nothing here looks at them. In the settled state nothing is allocated for a letter.
//!
//! Each connection has one queue: what waits here, and what its socket has not taken of what it was told before
//! ([`Postroom::set_unsent`]). What other peers have for a connection is dropped where the queue is long, before it is
//! encoded; replies to its own messages have a limit of their own ([`QueueLimits`]). So no peer can make the queue of
//! another one long, nor keep its replies from it.

use std::collections::VecDeque;
use std::sync::Arc;

use shoal_wire::stream::Handle;

use crate::address::Address;
use crate::mailbox::Mailboxes;
use crate::post::{Class, GROUPS, Letters};

/// How much may wait for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Bytes in the queue from which on answers of other peers are dropped. Offers are dropped from half of that on; and
    /// while the socket has not taken all, from a quarter on those of a group of sources that has an eighth of it there.
    /// So there is at most one answer or offer more, and an empty queue takes a message of any size.
    pub queue_bytes_max: usize,
    /// Most bytes of replies to its own messages that wait here. A connection that leaves more unread is to be closed.
    pub reply_bytes_max: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { queue_bytes_max: 128 * 1024, reply_bytes_max: 256 * 1024 }
    }
}

/// What may wait for a connection in replies to its own messages however much waits for others.
const ASSURED_BYTES: usize = 2 * 1024;

/// Bytes of the payload of a challenge.
pub const CHALLENGE_BYTES: usize = 40;

/// Most bytes that wait for all connections of a worker together, unless it is told otherwise: see
/// [`Postroom::with_bytes_max`].
const SUM_BYTES_MAX: usize = 64 << 20;

/// Largest buffer that is kept for the next post.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Most bytes of all buffers that are kept: enough for a thousand connections that are told something in each turn. Never
/// more than may wait: what comes to wait fills the kept buffers first, so the two together stay within what buffers of
/// messages may take.
const KEPT_BYTES_SUM_MAX: usize = 32 << 20;

/// Turns after which buffers are given back that were not needed meanwhile.
const SPARE_TURNS: u32 = 1024;

/// No slot: nothing waits for a connection.
const NO_SLOT: u32 = u32::MAX;

/// The post of one worker.
#[derive(Debug)]
pub struct Postroom {
    worker: u16,
    mailboxes: Arc<Mailboxes>,
    limits: QueueLimits,
    /// The slots of the own connections, by the index of their handles.
    slots: Vec<u32>,
    posts: Vec<Post>,
    /// What waits in all of them, and the most that may of each kind.
    sums: Sums,
    bytes_max: usize,
    /// Slots without a post. The one that was used last is used next, since its buffer is still in the cache.
    free: Vec<u32>,
    /// Bytes of the buffers of these.
    kept_bytes: usize,
    /// The fewest that there have been lately: so many at the front have not been used.
    spare: usize,
    /// Turns since these were counted anew.
    turns: u32,
    /// For whom something waits, in the order in which it came. Some may have been served since.
    waiting: VecDeque<Handle>,
    /// Who was named last. What waits for it still when the next is named will not be fetched any more.
    named: Option<Handle>,
    /// What is to go to other workers.
    batches: Box<[Letters]>,
    /// What has come from them, while it is being handed out.
    inbox: Letters,
    /// Challenges that have come and were not seen to yet. As many as fit the mailbox.
    challenges: Vec<(Handle, [u8; CHALLENGE_BYTES])>,
    /// Workers that are to be woken.
    wakes: Vec<u16>,
    losses: Losses,
}

/// What waits for one connection.
#[derive(Debug)]
struct Post {
    to: Handle,
    bytes: Vec<u8>,
    /// How much of that is replies to messages of the connection itself.
    reply_bytes: usize,
    /// How much of that is offers, by the group of their source.
    offer_bytes: [u32; GROUPS as usize],
    /// What the connection was told before and its socket has not taken. Before that is zero it is not named.
    unsent_bytes: usize,
    /// Whether it is to be named although nothing may wait for it.
    is_called: bool,
}

/// How many bytes wait for all connections.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Replies to connections that take what they are told.
    replies: usize,
    /// Messages of others to such connections.
    relayed: usize,
    /// All that waits for connections with a backlog.
    backlog: usize,
}

impl Sums {
    const fn add(&mut self, post: &Post) {
        if post.unsent_bytes > 0 {
            self.backlog += post.bytes.len();
        } else {
            self.replies += post.reply_bytes;
            self.relayed += post.bytes.len() - post.reply_bytes;
        }
    }

    const fn subtract(&mut self, post: &Post) {
        if post.unsent_bytes > 0 {
            self.backlog -= post.bytes.len();
        } else {
            self.replies -= post.reply_bytes;
            self.relayed -= post.bytes.len() - post.reply_bytes;
        }
    }
}

/// Why a letter cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwritten {
    /// The connection has gone.
    Gone,
    /// Its receiver has as much in its queue as may be there.
    QueueFull,
    /// The worker of its receiver has as much in its mailbox as may be there.
    MailboxFull,
}

/// Letters that were written and will not be heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// What waited for connections that had gone, or that could not be spoken to. What waited together counts as one.
    pub gone: u64,
    /// Letters for which another worker had no room in its mailbox.
    pub mailbox_full: u64,
    /// Letters from other workers for which their receivers had no room in their queues.
    pub queue_full: u64,
}

impl Postroom {
    /// The post of a worker, which has one of the mailboxes.
    #[must_use]
    pub fn new(worker: u16, mailboxes: Arc<Mailboxes>) -> Self {
        let batches = (0..mailboxes.workers()).map(|_| Letters::default()).collect();
        Self {
            worker,
            mailboxes,
            limits: QueueLimits::default(),
            slots: Vec::new(),
            posts: Vec::new(),
            sums: Sums::default(),
            bytes_max: SUM_BYTES_MAX,
            free: Vec::new(),
            kept_bytes: 0,
            spare: 0,
            turns: 0,
            waiting: VecDeque::new(),
            named: None,
            batches,
            inbox: Letters::default(),
            challenges: Vec::new(),
            wakes: Vec::new(),
            losses: Losses::default(),
        }
    }

    /// The same with other limits than by default.
    #[must_use]
    pub const fn with_limits(mut self, limits: QueueLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The same, in which no more than so many bytes wait for all connections that do not take what they are told, as many
    /// in replies to the others and as many in messages for those, and little more with the replies that each is assured
    /// of. What would be more is lost, and the buffers that are kept for later have a quarter of it at most.
    #[must_use]
    pub const fn with_bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    /// Which worker it is that has it.
    #[must_use]
    pub const fn worker(&self) -> u16 {
        self.worker
    }

    /// Has `write` append a letter to what waits for a connection, or to what goes to its worker. Is not called where the
    /// letter is lost at once.
    ///
    /// # Errors
    /// [`Unwritten`] where the letter is lost at once.
    pub fn write(
        &mut self,
        to: Address,
        class: Class,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Unwritten> {
        if to.worker == self.worker {
            return self.write_own(to.handle, class, write);
        }
        let bytes_max = self.mailboxes.batch_bytes_max();
        let batch = self.batches.get_mut(usize::from(to.worker)).ok_or(Unwritten::Gone)?;
        let is_written = batch.write(to.handle, class, bytes_max, write);
        if is_written { Ok(()) } else { Err(Unwritten::MailboxFull) }
    }

    /// Takes note of how much of what a connection was told its socket has not taken. Before that is zero again, the
    /// connection is not named, and what is written to it waits here.
    pub fn set_unsent(&mut self, handle: Handle, unsent_bytes: usize) {
        // It need not have fetched what it was named for.
        self.named.take_if(|named| *named == handle);
        let slot = if unsent_bytes > 0 { self.slot_for(handle) } else { self.slot_of(handle) };
        let Some(slot) = slot else { return };
        let post = &mut self.posts[as_usize(slot)];
        self.sums.subtract(post);
        post.unsent_bytes = unsent_bytes;
        self.sums.add(post);
        if unsent_bytes > 0 {
            return;
        }
        if post.is_due() {
            self.waiting.push_back(handle);
        } else {
            self.release(slot);
        }
    }

    /// Whether the socket of a connection has not taken all that it was told.
    #[must_use]
    pub fn has_unsent(&self, handle: Handle) -> bool {
        self.slot_of(handle).is_some_and(|slot| self.posts[as_usize(slot)].unsent_bytes > 0)
    }

    /// How many bytes wait here for a connection whose socket has not taken what it was told before.
    #[must_use]
    pub fn backlog_bytes(&self, handle: Handle) -> usize {
        let post = self.slot_of(handle).map(|slot| &self.posts[as_usize(slot)]);
        post.filter(|post| post.unsent_bytes > 0).map_or(0, |post| post.bytes.capacity())
    }

    /// Has a connection named in its turn, also if nothing waits for it.
    pub fn call(&mut self, handle: Handle) {
        if let Some(slot) = self.slot_for(handle) {
            self.posts[as_usize(slot)].is_called = true;
        }
    }

    /// The next connection for which something waits: each comes once. Whoever was named before and has not fetched its
    /// post is taken for gone.
    pub fn speaker(&mut self) -> Option<Handle> {
        if let Some(named) = self.named.take()
            && self.discard(named)
        {
            self.losses.gone += 1;
        }
        while let Some(handle) = self.waiting.pop_front() {
            let is_due = |slot| self.posts[as_usize(slot)].is_due();
            if self.slot_of(handle).is_some_and(is_due) {
                self.named = Some(handle);
                break;
            }
        }
        self.named
    }

    /// Lets `fetch` see what waits for a connection, which then waits no more. Nothing where nothing waits.
    pub fn fetch<R>(&mut self, handle: Handle, fetch: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let slot = self.slot_of(handle)?;
        // What is written to it from now on is not what it was named for.
        self.named.take_if(|named| *named == handle);
        let fetched = fetch(&self.posts[as_usize(slot)].bytes);
        self.release(slot);
        Some(fetched)
    }

    /// A connection has gone: throws away what waits for it.
    pub fn forget(&mut self, handle: Handle) {
        self.discard(handle);
    }

    /// Fetches what has come from other workers. To be called before a turn.
    pub fn collect(&mut self) {
        self.mailboxes.collect(usize::from(self.worker), &mut self.inbox);
        let inbox = core::mem::take(&mut self.inbox);
        for (to, class, letter) in inbox.iter() {
            if class == Class::Challenge {
                self.challenges.extend(letter.try_into().map(|payload| (to, payload)));
                continue;
            }
            match self.write_own(to, class, |out| out.extend_from_slice(letter)) {
                Ok(()) => {}
                Err(Unwritten::Gone) => self.losses.gone += 1,
                Err(Unwritten::QueueFull | Unwritten::MailboxFull) => self.losses.queue_full += 1,
            }
        }
        self.inbox = inbox;
        self.inbox.clear();
    }

    /// A challenge to a connection of this worker that has come from another one: the connection and the payload. Each
    /// comes once.
    pub fn challenge(&mut self) -> Option<(Handle, [u8; CHALLENGE_BYTES])> {
        self.challenges.pop()
    }

    /// Sends off what there is for other workers, and names those that are to be woken, since they may be waiting for
    /// something else. To be called after a turn.
    pub fn dispatch(&mut self) -> impl Iterator<Item = u16> {
        self.turns += 1;
        if self.turns == SPARE_TURNS {
            self.release_spare();
        }
        self.wakes.clear();
        for (worker, batch) in (0..).zip(&mut self.batches) {
            if !batch.is_empty() {
                let posted = self.mailboxes.put(usize::from(worker), batch);
                self.losses.mailbox_full += posted.lost;
                if posted.wakes {
                    self.wakes.push(worker);
                }
            }
        }
        self.wakes.drain(..)
    }

    /// Gives back memory that was not needed since the last call. To be called every few seconds.
    pub fn trim(&mut self) {
        self.release_spare();
        self.inbox.trim();
        self.batches.iter_mut().for_each(Letters::trim);
        self.mailboxes.trim(usize::from(self.worker));
        self.waiting.shrink_to(2 * self.waiting.len());
    }

    /// What has been lost since this was asked last, apart from what was told at once.
    pub fn losses(&mut self) -> Losses {
        core::mem::take(&mut self.losses)
    }

    fn write_own(
        &mut self,
        to: Handle,
        class: Class,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Unwritten> {
        let slot = self.slot_for(to).ok_or(Unwritten::Gone)?;
        let post = &mut self.posts[as_usize(slot)];
        if !post.admits(class, &self.limits) {
            return Err(Unwritten::QueueFull);
        }
        post.find_room(class, &self.sums, self.bytes_max)?;
        self.sums.subtract(post);
        let before = post.bytes.len();
        write(&mut post.bytes);
        let written = post.bytes.len() - before;
        match class {
            Class::Reply => post.reply_bytes += written,
            Class::Offer(group) => {
                let bytes = &mut post.offer_bytes[usize::from(group % GROUPS)];
                *bytes = bytes.saturating_add(u32::try_from(written).unwrap_or(u32::MAX));
            }
            Class::Answer | Class::Challenge => {}
        }
        self.sums.add(post);
        Ok(())
    }

    /// The slot with what waits for a connection.
    fn slot_of(&self, handle: Handle) -> Option<u32> {
        let slot = *self.slots.get(as_usize(handle.index))?;
        (slot != NO_SLOT && self.posts[as_usize(slot)].to == handle).then_some(slot)
    }

    /// The slot for what is to wait for a connection; none if it is known to have gone.
    fn slot_for(&mut self, to: Handle) -> Option<u32> {
        let index = as_usize(to.index);
        if index >= self.slots.len() {
            self.slots.resize(index + 1, NO_SLOT);
        }
        let slot = self.slots[index];
        if slot == NO_SLOT {
            return Some(self.occupy(to));
        }
        let post = &mut self.posts[as_usize(slot)];
        if post.to == to {
            return Some(slot);
        }
        if !is_newer(to, post.to) {
            return None;
        }
        // Whom the post was for has gone, and this is who came after it.
        self.losses.gone += 1;
        self.sums.subtract(post);
        post.clear();
        post.to = to;
        self.waiting.push_back(to);
        Some(slot)
    }

    /// Takes a slot for a connection for which nothing waits.
    fn occupy(&mut self, to: Handle) -> u32 {
        let slot = match self.free.pop() {
            Some(slot) => {
                let post = &mut self.posts[as_usize(slot)];
                post.to = to;
                self.kept_bytes -= post.bytes.capacity();
                self.spare = self.spare.min(self.free.len());
                slot
            }
            None => {
                let slot = u32::try_from(self.posts.len()).expect("no more posts than connections");
                self.posts.push(Post::new(to));
                slot
            }
        };
        self.slots[as_usize(to.index)] = slot;
        self.waiting.push_back(to);
        slot
    }

    /// Throws away what waits for a connection. Returns whether something did.
    fn discard(&mut self, handle: Handle) -> bool {
        let slot = self.slot_of(handle);
        if let Some(slot) = slot {
            self.release(slot);
        }
        slot.is_some()
    }

    fn release(&mut self, slot: u32) {
        let post = &mut self.posts[as_usize(slot)];
        self.slots[as_usize(post.to.index)] = NO_SLOT;
        self.sums.subtract(post);
        post.clear();
        let bytes = post.bytes.capacity();
        if bytes > KEPT_BYTES_MAX || self.kept_bytes + bytes > KEPT_BYTES_SUM_MAX.min(self.bytes_max) {
            post.bytes = Vec::new();
        }
        self.kept_bytes += post.bytes.capacity();
        self.free.push(slot);
    }

    /// Gives back the buffers that have not been used lately, so that what was needed once is not held for good.
    fn release_spare(&mut self) {
        for &slot in &self.free[..self.spare] {
            let bytes = &mut self.posts[as_usize(slot)].bytes;
            self.kept_bytes -= bytes.capacity();
            *bytes = Vec::new();
        }
        self.spare = self.free.len();
        self.turns = 0;
    }
}

impl Post {
    const fn new(to: Handle) -> Self {
        Self {
            to,
            bytes: Vec::new(),
            reply_bytes: 0,
            offer_bytes: [0; GROUPS as usize],
            unsent_bytes: 0,
            is_called: false,
        }
    }

    /// Whether the connection is to be named.
    const fn is_due(&self) -> bool {
        self.unsent_bytes == 0 && (self.is_called || !self.bytes.is_empty())
    }

    /// Whether one more message may wait.
    fn admits(&self, class: Class, limits: &QueueLimits) -> bool {
        let queue_bytes = self.bytes.len() - self.reply_bytes + self.unsent_bytes;
        match class {
            Class::Reply => self.reply_bytes < limits.reply_bytes_max,
            Class::Answer | Class::Challenge => queue_bytes < limits.queue_bytes_max,
            Class::Offer(group) => {
                let group_bytes = self.offer_bytes[usize::from(group % GROUPS)];
                let is_greedy = || as_usize(group_bytes) >= limits.queue_bytes_max / 8;
                queue_bytes < limits.queue_bytes_max / 4
                    || queue_bytes < limits.queue_bytes_max / 2 && (self.unsent_bytes == 0 || !is_greedy())
            }
        }
    }

    /// Checks that one more message may wait where so much waits for all connections. Each has room for a little in replies
    /// whatever the others hold, and whatever the others have for it; so those that leave theirs unread, or ask for much at
    /// once, cost others nothing.
    const fn find_room(&self, class: Class, sums: &Sums, bytes_max: usize) -> Result<(), Unwritten> {
        let (is_reply, is_backlogged) = (matches!(class, Class::Reply), self.unsent_bytes > 0);
        let sum_bytes = match (is_backlogged, is_reply) {
            (true, _) => sums.backlog,
            (false, true) => sums.replies,
            (false, false) => sums.relayed,
        };
        if sum_bytes < bytes_max || is_reply && self.reply_bytes < ASSURED_BYTES {
            Ok(())
        } else if is_reply && is_backlogged {
            Err(Unwritten::QueueFull)
        } else {
            Err(Unwritten::MailboxFull)
        }
    }

    /// Forgets what waits and what is known of the connection. The buffer stays.
    fn clear(&mut self) {
        self.bytes.clear();
        (self.reply_bytes, self.unsent_bytes, self.is_called) = (0, 0, false);
        self.offer_bytes = [0; GROUPS as usize];
    }
}

/// Whether the connection came after another that had its place. Generations begin anew after the greatest.
fn is_newer(handle: Handle, than: Handle) -> bool {
    let ahead = handle.generation.wrapping_sub(than.generation) & Handle::GENERATION_MAX;
    ahead <= Handle::GENERATION_MAX / 2
}

fn as_usize(number: u32) -> usize {
    usize::try_from(number).expect("an address has 32 bits or more")
}
