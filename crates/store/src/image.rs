//! The image of a store: everything outside its pages that another process needs to continue with it.
//!
//! The pages lie in a [`MemoryFile`], which the other process maps. The image is about a hundredth of their size. It is
//! no storage format ([`crate::snapshot`] is): both processes must agree on the layout of pages, on the secrets, and on
//! the settings that affect positions. The header shows any difference, and the checksum shows damage; then nothing is
//! taken over. Each page is taken over by one owner, so an image cannot make two structures share memory.
//!
//! Layout: a CRC-32 of the rest; then the header, the free pages, the counts of sources and the shards, in the encoding
//! of `postcard`.
//!
//! The old process writes the image under every lock of the store. Once it has let go, it never releases the locks, so
//! its threads cannot touch pages that the new process changes. Heap structures in shared memory would need their own
//! allocator, and offsets in place of pointers. Without a memory file, the store is private, and an upgrade copies it
//! as a snapshot.

use std::io;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shoal_base::{InfoHash, PeerV4, PeerV6};

use crate::age::AgeClock;
use crate::expiry::Sweep;
use crate::family::{Family, Stored};
use crate::memory::arena::{Arena, Claims, PAGE_BYTES};
use crate::memory::file::MemoryFile;
use crate::memory::slab::CLASS_BYTES;
use crate::memory::{Memory, MemoryImage};
use crate::retained::{RetainedImage, RetainedLine};
use crate::shard::{Larges, Shard, Tally};
use crate::store::Store;
use crate::swarms::Swarms;
use crate::table::Table;

/// The version of the contents of images and pages. Any change of their layout or meaning increments it.
const LAYOUT: u32 = 3;

/// Why a store was not taken over. It is intact, and a snapshot can move its swarms.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The memory file cannot be used.
    #[error("the memory file cannot be mapped: {0}")]
    Memory(#[from] io::Error),
    /// The image is incomplete or was changed.
    #[error("the image of the store is damaged")]
    Damaged,
    /// Another version of the program has written it.
    #[error("the layout of the store differs")]
    Layout,
    /// The store has other secrets or settings.
    #[error("{0} differs")]
    Settings(&'static str),
}

/// The properties that two stores must share.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    layout: u32,
    sizes: [u32; 7],
    /// A hash that depends on the secrets.
    key_check: u64,
    timeout_s: u32,
    /// The number of positions of a source's peers.
    source_slots: Option<u64>,
    shards: u32,
    counts: u32,
}

/// The content of a shard outside its pages, except for values that follow from the settings.
type ShardImage<P> = (
    AgeClock,
    Vec<u32>,
    Table<<P as Stored>::SwarmLine>,
    Vec<(InfoHashBytes, u32)>,
    RetainedImage,
    Larges<P>,
    Sweep,
    Tally,
    MemoryImage,
);

type InfoHashBytes = [u8; size_of::<InfoHash>()];

impl Store {
    /// Calls `then` with the memory file and the image, while nothing in the store can change: threads that use the
    /// store wait until `then` returns. They keep their other locks meanwhile, so `then` must take none of these. Nor may
    /// `then` return once another process uses the file. Returns `None` if the memory is private.
    pub fn freeze<T>(&self, then: impl FnOnce(&MemoryFile, &[u8]) -> T) -> Option<T> {
        let (file, header) = (self.arena().file()?, self.header());
        let _trimming = self.arena().pause_trimming();
        let [v4, private_v4] = [&self.v4, &self.private.v4].map(Swarms::lock_all);
        let [v6, private_v6] = [&self.v6, &self.private.v6].map(Swarms::lock_all);
        let mut image = vec![0; size_of::<u32>()];
        write(&mut image, &header);
        write(&mut image, &self.arena().free_pages());
        write(&mut image, &self.pressure().words());
        v4.iter().chain(&private_v4).for_each(|shard| write_shard(&mut image, shard));
        v6.iter().chain(&private_v6).for_each(|shard| write_shard(&mut image, shard));
        let checksum = crc32fast::hash(&image[size_of::<u32>()..]);
        image[..size_of::<u32>()].copy_from_slice(&checksum.to_le_bytes());
        Some(then(file, &image))
    }

    /// Lets this store continue with the image of another one. It must be empty and lie in that store's memory file.
    /// The error says why it cannot. The pages are unchanged, but this store must not be used.
    pub fn resume(&mut self, image: &[u8]) -> Result<(), ImageError> {
        let (checksum, mut image) = image.split_first_chunk().ok_or(ImageError::Damaged)?;
        if crc32fast::hash(image) != u32::from_le_bytes(*checksum) {
            return Err(ImageError::Damaged);
        }
        self.header().check(&read(&mut image)?)?;
        let arena = Arc::clone(self.arena());
        let mut claims = arena.resume(&read(&mut image)?).ok_or(ImageError::Settings("memory.max"))?;
        self.pressure().set_words(&read::<Vec<u32>>(&mut image)?);
        let claims = &mut claims;
        self.v4.resume(&arena, claims, &mut image)?;
        self.private.v4.resume(&arena, claims, &mut image)?;
        self.v6.resume(&arena, claims, &mut image)?;
        self.private.v6.resume(&arena, claims, &mut image)?;
        if claims.is_complete() { Ok(()) } else { Err(ImageError::Damaged) }
    }

    /// Returns the file that holds the memory, unless it is private.
    pub fn memory_file(&self) -> Option<&MemoryFile> {
        self.arena().file()
    }

    fn header(&self) -> Header {
        let size = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let sizes = [
            PAGE_BYTES,
            size_of::<<PeerV4 as Stored>::SwarmLine>(),
            size_of::<<PeerV6 as Stored>::SwarmLine>(),
            size_of::<RetainedLine>(),
            size_of::<<PeerV4 as Stored>::Line>(),
            size_of::<<PeerV6 as Stored>::Line>(),
            CLASS_BYTES.iter().sum(),
        ];
        Header {
            layout: LAYOUT,
            sizes: sizes.map(size),
            key_check: self.v4.key_check(),
            timeout_s: self.v4.timeout_s(),
            source_slots: self.v4.source_slots(),
            shards: size(self.v4.shards()),
            counts: self.pressure().words_len(),
        }
    }
}

impl Header {
    fn check(&self, other: &Self) -> Result<(), ImageError> {
        if (other.layout, other.sizes) != (self.layout, self.sizes) {
            return Err(ImageError::Layout);
        }
        let different = [
            ("the secret of the store", self.key_check != other.key_check),
            ("announce.peer_timeout_s", self.timeout_s != other.timeout_s),
            ("announce.peers_per_address_max", self.source_slots != other.source_slots),
            (
                "the number of shards, which follows from workers.count and memory.max",
                self.shards != other.shards,
            ),
            ("the section limits, or memory.max,", self.counts != other.counts),
        ];
        let different = different.into_iter().find(|(_, differs)| *differs);
        different.map_or(Ok(()), |(name, _)| Err(ImageError::Settings(name)))
    }
}

impl<P: Family> Swarms<P> {
    fn resume(
        &mut self,
        arena: &Arc<Arena>,
        claims: &mut Claims<'_>,
        image: &mut &[u8],
    ) -> Result<(), ImageError> {
        self.replace_shards(|shard| read_shard(shard, arena, claims, image))
    }
}

fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    // The encoder takes the vector and returns it.
    *out = postcard::to_extend(value, core::mem::take(out)).expect("every value of an image can be encoded");
}

fn read<T: DeserializeOwned>(image: &mut &[u8]) -> Result<T, ImageError> {
    let (value, rest) = postcard::take_from_bytes(image).map_err(|_| ImageError::Damaged)?;
    *image = rest;
    Ok(value)
}

fn write_shard<P: Family>(out: &mut Vec<u8>, shard: &Shard<P>) {
    let completions: Vec<u32> = shard.completions.words().collect();
    let downloads = shard.many_downloads.iter().map(|(id, &count)| (id.0, count));
    let downloads: Vec<(InfoHashBytes, u32)> = downloads.collect();
    let Shard { ages, swarms, retained, larges, sweep, tally, .. } = shard;
    write(
        out,
        &(ages, completions, swarms, downloads, retained.image(), larges, sweep, tally, shard.memory.image()),
    );
}

fn read_shard<P: Family>(
    shard: &mut Shard<P>,
    arena: &Arc<Arena>,
    claims: &mut Claims<'_>,
    image: &mut &[u8],
) -> Result<(), ImageError> {
    let (ages, completions, swarms, downloads, retained, larges, sweep, tally, memory): ShardImage<P> =
        read(image)?;
    shard.memory = Memory::resume(arena, memory, claims).ok_or(ImageError::Damaged)?;
    shard.completions.set_words(completions);
    shard.many_downloads = downloads.into_iter().map(|(id, count)| (InfoHash(id), count)).collect();
    (shard.ages, shard.swarms, shard.larges) = (ages, swarms, larges);
    shard.retained.resume(retained);
    (shard.sweep, shard.tally) = (sweep, tally);
    Ok(())
}
