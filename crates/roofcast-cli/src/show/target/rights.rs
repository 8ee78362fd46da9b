//! Permissions of a file: write access, and the metadata that a replacement keeps.
//!
//! Knows: mode, owner and access on Unix; elsewhere only the read-only attribute. Knows nothing about replacing
//! files.

#[cfg(not(unix))]
pub(super) use elsewhere::*;
#[cfg(unix)]
pub(super) use of_unix::*;

#[cfg(unix)]
mod of_unix {
    use rustix::fs::{Access, access};
    use std::fs::{File, Metadata, Permissions};
    use std::io;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, fchown};
    use std::path::Path;

    /// True for a socket, which cannot be written by path.
    pub(in super::super) fn is_socket(found: &Metadata) -> bool {
        found.file_type().is_socket()
    }

    /// True if the mode allows no write; the superuser may write nevertheless.
    pub(in super::super) fn is_read_only(found: &Metadata) -> bool {
        found.mode() & 0o222 == 0
    }

    /// Succeeds if this process may write the file at `path`.
    pub(in super::super) fn may_write(path: &Path) -> io::Result<()> {
        Ok(access(path, Access::WRITE_OK)?)
    }

    /// Succeeds if this process may create files in `folder`.
    pub(in super::super) fn may_add(folder: &Path) -> io::Result<()> {
        Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
    }

    /// Permissions of a new file, before `umask`.
    pub(in super::super) fn new() -> Option<Permissions> {
        Some(Permissions::from_mode(0o666))
    }

    /// Copies mode and owner from the replaced file; a world-writable file of another user becomes the writer's.
    pub(in super::super) fn keep(part: &File, old: &Metadata) -> io::Result<()> {
        let mine = part.metadata()?;
        if (mine.uid(), mine.gid()) != (old.uid(), old.gid()) {
            drop(fchown(part, Some(old.uid()), Some(old.gid())));
        }
        part.set_permissions(old.permissions())
    }
}

#[cfg(not(unix))]
mod elsewhere {
    use std::fs::{File, Metadata, Permissions};
    use std::io::{Error, ErrorKind, Result};
    use std::path::Path;

    /// False: sockets have no path on this system.
    pub(in super::super) fn is_socket(_: &Metadata) -> bool {
        false
    }

    /// True if the file has the read-only attribute.
    pub(in super::super) fn is_read_only(found: &Metadata) -> bool {
        found.permissions().readonly()
    }

    /// Succeeds unless the file is read-only; other obstacles become errors of the write itself.
    pub(in super::super) fn may_write(path: &Path) -> Result<()> {
        if is_read_only(&path.metadata()?) { Err(Error::from(ErrorKind::PermissionDenied)) } else { Ok(()) }
    }

    /// Succeeds: the read-only attribute of a folder does not apply to the files in it.
    pub(in super::super) fn may_add(_: &Path) -> Result<()> {
        Ok(())
    }

    /// `None`: a new file gets the permissions that its folder defines.
    pub(in super::super) fn new() -> Option<Permissions> {
        None
    }

    /// Copies the read-only attribute of the replaced file to `part`.
    pub(in super::super) fn keep(part: &File, old: &Metadata) -> Result<()> {
        part.set_permissions(old.permissions())
    }
}
