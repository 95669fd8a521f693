//! A database that failed while it was in use gets a successor, without a new start.
//!
//! sled holds on to its first failed write and takes no more; a disk without room is enough for that. What was
//! acknowledged is in the journal, so a database is built from there, beside the one that failed, and takes its place. Until
//! there is room for it, trees in memory serve the readers.
//!
//! This module owns the steps and their order: see that there is room, build and sync, close the old one, remove it,
//! rename, open. Readers wait during the last four, for about as long as a start takes. A crash at any point leaves a
//! database that is not believed, or none: the start rebuilds it. It must not know what is in the journal.

use std::fs;
use std::path::Path;

use super::apply::Mark;
use super::body::sync_folder_of;
use super::error::StoreError;
use super::journal::Position;
use super::keyspace::Keyspace;
use super::open::{self, Places};
use super::shared::Shared;

/// How much room a database needs at least, in bytes: sled takes some segments of a megabyte at once.
const SMALLEST_DATABASE_BYTES: u64 = 2 << 20;

/// Builds a database up to this position of the journal and puts it in the place of the one in use.
///
/// The caller has seen to it that the journal ends there and that the database in its place is not believed.
pub(super) fn replace(
    places: &Places,
    shared: &Shared,
    position: &Position,
    live_bytes: u64,
) -> Result<Mark, StoreError> {
    open::remove_folder(&places.next_database)?;
    // Pages are up to half empty, and are written anew before the old ones are given free.
    check_room(
        &places.next_database,
        live_bytes.saturating_mul(2).max(SMALLEST_DATABASE_BYTES),
    )?;
    let built = open::build(&places.journal, &places.next_database);
    let open::Filled { mark, is_damaged } = match built {
        Ok(filled) if filled.mark.position == *position => filled,
        outcome => {
            open::remove_folder(&places.next_database)?;
            outcome?;
            return Err(StoreError::OutOfService);
        }
    };
    let mut keyspace = shared.keyspace_to_replace();
    // Closed before its folder goes: it may still try to write there.
    drop(std::mem::replace(&mut *keyspace, Keyspace::Closed));
    if is_damaged {
        // The one that failed may have what the journal has lost.
        let journal = open::keep_aside(&places.journal, open::DAMAGED)?;
        let database = open::set_aside(&places.database, open::BROKEN)?;
        tracing::error!(
            ?journal,
            ?database,
            "the database has failed, and the journal that it is built from is damaged; both are kept"
        );
    } else {
        open::remove_folder(&places.database)?;
    }
    fs::rename(&places.next_database, &places.database)
        .map_err(StoreError::io("rename", &places.next_database))?;
    sync_folder_of(&places.database)?;
    *keyspace = Keyspace::open(&places.database)?;
    tracing::warn!(
        changes = mark.position.sequence,
        "the database had failed and was built anew from the journal"
    );
    Ok(mark)
}

/// Puts trees in memory in the place of a database that failed: sled answers readers with that failure too.
///
/// They take as much memory as everything that is stored, until [`replace`] finds room.
pub(super) fn stand_in(places: &Places, shared: &Shared, position: &Position) -> Result<(), StoreError> {
    let trees = Keyspace::in_memory();
    if open::fill(&places.journal, &trees)?.mark.position != *position {
        return Err(StoreError::OutOfService);
    }
    *shared.keyspace_to_replace() = trees;
    Ok(())
}

/// Fails when there is no room for a file of this length: to find that out by building a database could take seconds,
/// for each change that comes while there is none.
#[cfg(target_os = "linux")]
fn check_room(path: &Path, bytes: u64) -> Result<(), StoreError> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;

    let no_room = StoreError::io("find room for", path);
    let file = fs::File::create(path).map_err(StoreError::io("create", path))?;
    let reserved = fallocate(&file, FallocateFlags::empty(), 0, bytes);
    fs::remove_file(path).map_err(StoreError::io("remove", path))?;
    match reserved {
        // Where the file system cannot say, the attempt will.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(no_room(error.into())),
    }
}

/// Other systems do not say: the attempt will.
#[cfg(not(target_os = "linux"))]
fn check_room(_path: &Path, _bytes: u64) -> Result<(), StoreError> {
    Ok(())
}
