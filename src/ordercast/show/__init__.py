"""What people look at: pictures, pages, terminal."""
