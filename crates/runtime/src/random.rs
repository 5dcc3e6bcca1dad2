//! Random numbers of the kernel, for secrets.

use anyhow::Context;

// Otherwise the library looks for a function of the C library at run time. A static program has none to look in, and its
// sandbox hides the file that the library would read instead.
#[cfg(all(target_env = "gnu", target_feature = "crt-static", not(getrandom_backend = "linux_getrandom")))]
compile_error!("a static program takes RUSTFLAGS with --cfg getrandom_backend=\"linux_getrandom\" as well");

/// Returns random bytes that cannot be guessed. Fails if the kernel provides no random numbers.
pub fn bytes<const BYTES: usize>() -> anyhow::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).context("the kernel provides no random numbers")?;
    Ok(bytes)
}

/// Returns random words that cannot be guessed. Fails if the kernel provides no random numbers.
pub fn words() -> anyhow::Result<[u64; 4]> {
    let words: [[u8; 8]; 4] = [bytes()?, bytes()?, bytes()?, bytes()?];
    Ok(words.map(u64::from_ne_bytes))
}
