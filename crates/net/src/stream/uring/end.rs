//! The end of a back end: it stops accepting, and closes when the kernel is done with all that it was given.

use std::io;
use std::mem;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::super::StreamService;
use super::super::accept::{Accepting, accept};
use super::super::conduct::{Conduct, Leave, Recovery};
use super::super::listen::BACKLOG;
use super::UringIo;
use super::link::{Parting, Socket};
use super::outbox::{Landed, Then};
use super::submit;
use super::token::Token;
use crate::ring::Completion;

/// How often the accepts are looked after at the end.
const RETIRE_ROUNDS_MAX: usize = 64;

/// Patience with the kernel when the back end closes: rounds, and the wait in each.
const CLOSE_ROUNDS_MAX: usize = 20;
const CLOSE_ROUND_WAIT: Duration = Duration::from_millis(50);

impl<S: StreamService> UringIo<S> {
    /// Ends the accepts, and takes what they yield until then.
    pub(super) fn disarm(&mut self, now_ms: u64, service: &mut S) -> io::Result<()> {
        self.accepting = Accepting::Retired;
        for (index, armed) in (0..).zip(&self.armed) {
            if *armed {
                self.ring.push(submit::cancel(Token::Accept(index)));
            }
        }
        for _ in 0..RETIRE_ROUNDS_MAX {
            self.ring.enter(Duration::ZERO)?;
            if self.round(now_ms, service)? == 0 && !self.armed.contains(&true) {
                break;
            }
        }
        Ok(())
    }

    /// Takes those in who wait at a listener that is no longer armed.
    pub(super) fn accept_rest(&mut self, index: usize, now_ms: u64, service: &mut S) -> io::Result<()> {
        for _ in 0..BACKLOG {
            match accept(&self.listeners.listeners[index], index, SocketFlags::CLOEXEC) {
                Ok((socket, origin)) => self.take_in(socket, &origin, now_ms, service),
                Err(Errno::AGAIN) => break,
                Err(errno) => match self.recover(errno, service)? {
                    Recovery::Retry => {}
                    Recovery::Evicted | Recovery::Pause => break,
                },
            }
        }
        Ok(())
    }

    /// Ends all that is under way. Returns whether the kernel has confirmed it.
    fn shut_down(&mut self) -> bool {
        for _ in 0..CLOSE_ROUNDS_MAX {
            if self.ring.enter(Duration::ZERO).is_err() {
                return false;
            }
            self.ring.cancel_all(CLOSE_ROUND_WAIT);
            if self.ring.enter(Duration::ZERO).is_err() {
                return false;
            }
            while let Some(completion) = self.complete() {
                self.bury(&completion);
            }
            if self.under_way == 0 {
                return true;
            }
        }
        false
    }

    /// Takes note of what is over when nobody is served any more.
    fn bury(&mut self, completion: &Completion) {
        match self.account(completion) {
            Token::Accept(_) => drop(completion.outcome().map(submit::accepted)),
            Token::Receive(_) => {
                let filled = completion.buffer().map(|buffer| self.buffers.take(buffer));
                self.return_buffer(filled);
            }
            Token::Send(letter) => {
                let Landed { key, then, is_whole } =
                    self.outbox.land(letter, completion.outcome().unwrap_or(0));
                let left = self.roster.remove(key);
                let left =
                    left.map(|connection| Parting { link: connection.link, leave: Some(Leave::Gently) });
                match left.or_else(|| self.parting.remove(&key)) {
                    Some(Parting { link, .. }) if is_whole && then == Then::Close => link.forget(),
                    Some(Parting { link, leave: Some(leave) }) => match link.socket {
                        Socket::Descriptor(descriptor) => leave.prepare(&descriptor),
                        Socket::Slot(_) => self.hang_up(link, leave),
                    },
                    Some(Parting { leave: None, .. }) | None => {}
                }
            }
            Token::Close(_) => self.closing -= 1,
            Token::None | Token::Resume(_) | Token::End(_) => {}
        }
    }
}

impl<S: StreamService> Drop for UringIo<S> {
    fn drop(&mut self) {
        if self.shut_down() {
            self.ring.release_files();
            return;
        }
        // A little memory lost is harmless, a kernel that writes to memory of somebody else is not.
        self.outbox.leak();
        self.buffers.leak();
        self.slots.leak();
        self.roster.leak();
        mem::take(&mut self.parting).into_values().for_each(|parting| parting.link.forget());
    }
}
